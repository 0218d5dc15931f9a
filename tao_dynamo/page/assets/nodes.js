// SPDX-License-Identifier: Apache-2.0
// The nodes: a bar of room each.

const MANY_NODES = 16;

function nodeItem() {
  const item = make("li");
  const bar = make("div", "bar");
  bar.setAttribute("role", "img");
  for (const part of ["running", "between", "foreign", "claimed", "mark"]) bar.append(make("i", `seg-${part}`));
  item.append(make("span", "id"), make("span", "badge"), make("span", "pct"), bar, make("span", "more"));
  return item;
}

function updateNode(item, node, mark) {
  const [name, badge, pct, bar, more] = item.children;
  setText(name, node.name);
  name.title = `node ${node.node}`;
  const trouble = node.stale ? "stale" : node.events === "ok" ? "" : node.events;
  setText(badge, trouble);
  badge.hidden = !trouble;
  const used = node.reserved + node.foreign;
  setText(pct, percent(used, node.capacity));
  const share = (n) => (node.capacity ? Math.min(100, (100 * n) / node.capacity) : 0);
  const parts = [node.running, node.reserved - node.running, node.foreign, node.claimed];
  let from = 0;
  parts.forEach((part, i) => {
    const width = Math.min(share(part), 100 - from);
    bar.children[i].style.left = `${from}%`;
    bar.children[i].style.width = `${width}%`;
    from += width;
  });
  bar.children[4].style.left = `calc(${100 * mark}% - 1px)`;
  const says =
    `${tokens(used)} of ${tokens(node.capacity)} · ${node.running_sessions} of ${node.sessions} running` +
    ` · ${tokens(node.residual)} to give`;
  const engine = node.used === null ? "" : `; the engine measures ${tokens(node.used)} in use`;
  setText(more, says);
  const whole = `Node ${node.node}: ${says}${engine}; ${tokens(node.cached)} tokens of KV cache known`;
  if (bar.getAttribute("aria-label") !== whole) {
    bar.setAttribute("aria-label", whole);
    item.title = whole;
  }
}

function drawNodes(shot) {
  const { nodes } = shot;
  setClass($("node-list"), nodes.length > MANY_NODES ? "many" : "");
  setItems($("node-list"), nodes, nodeItem, (item, node) => updateNode(item, node, shot.admission_mark));
  let used = 0;
  let capacity = 0;
  let engine = 0;
  let told = 0;
  for (const node of nodes) {
    used += node.reserved + node.foreign;
    capacity += node.capacity;
    if (node.used !== null) {
      engine += node.used;
      told += node.capacity;
    }
  }
  const measured = told ? `, engines use ${percent(engine, told)}` : "";
  setText(
    $("nodes-sum"),
    nodes.length ? `${nodes.length}, ${percent(used, capacity)} of ${tokens(capacity)} tokens given${measured}` : "none",
  );
}
