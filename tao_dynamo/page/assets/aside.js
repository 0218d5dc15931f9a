// SPDX-License-Identifier: Apache-2.0
// What stands beside the sessions: the last minutes, the plans, the bus, the totals.

const KEPT_S = 300;
const HISTORY_ORDER = ["running", "tool", "idle", "paused", "waiting"];
const history = [];

function drawHistory(shot) {
  if (history.length && history[history.length - 1][0] === shot.at) return;
  history.push([shot.at, shot.by_state]);
  while (history.length > 1 && history[0][0] < shot.at - KEPT_S) history.shift();
  const svg = $("history");
  if (!svg.children.length) {
    for (const state of HISTORY_ORDER) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", `is-${state}`);
      svg.append(path);
    }
  }
  const sum = (counts) => HISTORY_ORDER.reduce((n, state) => n + (counts[state] || 0), 0);
  const peak = Math.max(1, ...history.map(([, counts]) => sum(counts)));
  const from = history[0][0];
  const span = Math.max(1, shot.at - from);
  svg.setAttribute("viewBox", "0 0 300 84");
  const x = (at) => ((300 * (at - from)) / span).toFixed(1);
  let floor = history.map(() => 0);
  HISTORY_ORDER.forEach((state, i) => {
    const roof = history.map(([, counts], j) => floor[j] + (counts[state] || 0));
    const y = (n) => (84 - (80 * n) / peak).toFixed(1);
    const up = history.map(([at], j) => `${x(at)},${y(roof[j])}`);
    const back = history.map(([at], j) => `${x(at)},${y(floor[j])}`).reverse();
    svg.children[i].setAttribute("d", `M${up.join("L")}L${back.join("L")}Z`);
    floor = roof;
  });
  setText($("history-from"), span < 5 ? "" : `${seconds(span)} ago, peak ${peak}`);
}

function planItem() {
  const item = make("li");
  item.append(make("span", "what"), make("time"), make("span", "note"), make("span", "note refused"));
  return item;
}

function gap(plan) {
  const parts = ["credit", "ready", "context"].map((name, i) => [name, plan.bound[i] - plan.value[i]]);
  const first = parts.find(([, missing]) => missing > 0);
  return first ? `at most ${tokens(first[1])} ${first[0]} short of the optimum` : "optimum not proven";
}

function updatePlan(item, plan) {
  const [what, ago, note, refused] = item.children;
  setText(what, `${plan.placed} of ${plural(plan.candidates, "session")} placed`);
  setText(ago, `${seconds(plan.ago_s)} ago`);
  const says = [plan.method, milliseconds(plan.seconds), plan.optimal ? "optimal" : gap(plan)];
  setText(note, says.join(" · "));
  if (item.title !== plan.note) item.title = plan.note;
  setText(refused, Object.entries(plan.refused).map(([why, n]) => `${n} refused: ${why}`).join("; "));
  refused.hidden = !Object.keys(plan.refused).length;
}

function drawPlans(shot) {
  setText($("plans-sum"), `${shot.totals.plans} applied${shot.solving ? ", one in the making" : ""}`);
  setItems($("plans"), shot.plans.slice(0, 6), planItem, updatePlan);
}

function drawBus({ bus, nodes }) {
  const silent = nodes.filter((node) => node.events === "silent").length;
  const state = !bus.listens ? "not used" : bus.connected ? "connected" : "not connected";
  setText($("bus-sum"), state);
  setClass($("bus-sum"), bus.listens && bus.connected ? "good" : "bad");
  const events = Object.values(bus.tool_events).reduce((a, b) => a + b, 0);
  setFacts($("bus"), [
    ["Age of the last KV event", bus.messages ? milliseconds(bus.lag_s) : "none yet"],
    ["Nodes being read anew", bus.stale_nodes, bus.stale_nodes ? "bad" : ""],
    ["Silent nodes", silent, silent ? "bad" : ""],
    ["Times a node was read anew", bus.resyncs],
    ["Messages", tokens(bus.messages)],
    ["Tool events", tokens(events)],
    ["KV blocks known", tokens(bus.blocks)],
    ["Malformed or dropped", bus.malformed + bus.dropped, bus.malformed + bus.dropped ? "bad" : ""],
    ["Times the bus was lost", bus.disconnects, bus.disconnects ? "bad" : ""],
  ]);
}

function drawTotals({ totals, up_s, took_ms }) {
  setText($("up"), `${seconds(up_s)} ago`);
  setFacts($("totals"), [
    ["Turns", tokens(totals.turns)],
    ["of these live", totals.live_turns],
    ["Prompt tokens from the cache", percent(totals.cached_tokens, totals.prompt_tokens) || "none yet"],
    ["Pauses, restarts", `${tokens(totals.pauses)}, ${tokens(totals.restarts)}`],
    ["Turns refused, failed", `${totals.refused}, ${totals.failed}`, totals.failed ? "bad" : ""],
    ["Turns cancelled, moved", `${totals.cancelled}, ${totals.displaced}`],
    ["Plans by the fallback", totals.fallbacks],
    ["Planner restarts", totals.planner_restarts, totals.planner_restarts ? "bad" : ""],
    ["Time this look took", `${took_ms.toFixed(1)} ms`],
  ]);
}
