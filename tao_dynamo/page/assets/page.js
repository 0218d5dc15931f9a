// SPDX-License-Identifier: Apache-2.0
// Asks for the snapshot once a second and draws it; keys and filters.

const EVERY_MS = 1000;
const LATE_MS = 5000;

const explain = new Explain();
const phone = matchMedia("(max-width: 760px)").matches;
const table = new Table((id) => explain.open(id), (id) => explain.follow(id));
let lastShot = null;
let lastAt = 0;
let failures = 0;
let held = false;
let timer = 0;

function drawStates(shot) {
  const nav = $("states");
  if (!nav.children.length) {
    STATES.forEach((state, i) => {
      const button = make("button", `is-${state}`);
      button.type = "button";
      button.setAttribute("aria-keyshortcuts", String(i + 1));
      button.append(make("i", "dot"), make("b"), make("span", "", state));
      button.addEventListener("click", () => toggle(state));
      nav.append(button);
    });
  }
  STATES.forEach((state, i) => {
    setText(nav.children[i].children[1], String(shot.by_state[state] || 0));
    nav.children[i].setAttribute("aria-pressed", String(table.states.has(state)));
  });
  nav.toggleAttribute("data-filtered", table.states.size > 0);
}

function toggle(state) {
  if (table.states.has(state)) table.states.delete(state);
  else table.states.add(state);
  table.arrange();
  drawAgain();
}

function drawShown(shot) {
  const total = shot.sessions.length;
  const filtered = table.rows.length !== total ? `${table.rows.length} of ` : "";
  const left = shot.left_out ? `, ${shot.left_out} more not listed` : "";
  const sorted = table.sort ? `by ${table.sort.title.toLowerCase()}` : "the waiting pool first, in its order";
  setText($("shown"), `${filtered}${total}${left}; ${sorted}`);
  const empty = !table.rows.length;
  $("empty").hidden = !empty;
  if (empty) setText($("empty"), total ? "No session matches." : "No session yet. A session comes with its first turn that has an x-dynamo-session-id.");
}

function drawProblems(shot) {
  const list = $("problems");
  setItems(list, shot.problems, () => make("li"), (item, text) => setText(item, text));
  list.hidden = !shot.problems.length;
}

function drawAgain() {
  if (!lastShot) return;
  drawStates(lastShot);
  drawShown(lastShot);
}

function draw(shot) {
  const names = {};
  for (const node of shot.nodes) names[node.node] = node.name;
  setText($("policy"), `${shot.version} · policy ${shot.policy}`);
  document.title = shot.by_state.waiting ? `(${shot.by_state.waiting}) TAO` : "TAO";
  drawProblems(shot);
  if (!lastShot && phone && shot.nodes.length > MANY_NODES) $("nodes").open = false;
  drawNodes(shot);
  table.show(shot.sessions, names);
  explain.names = names;
  drawStates(shot);
  drawShown(shot);
  drawHistory(shot);
  drawPlans(shot);
  drawBus(shot);
  drawTotals(shot);
  lastShot = shot;
}

function drawLink() {
  const age = performance.now() - lastAt;
  const late = failures > 0 && (!lastShot || age > LATE_MS);
  setClass($("link"), held ? "held" : late ? "late" : "");
  const text = held ? "frozen" : late ? (lastShot ? `no answer for ${seconds(age / 1000)}` : "no answer") : lastShot ? "live" : "connecting";
  setText($("link").lastChild, text);
}

async function poll() {
  clearTimeout(timer);
  if (held || document.hidden) return;
  const began = performance.now();
  try {
    const answer = await fetch("snapshot.json", { cache: "no-store", signal: AbortSignal.timeout(LATE_MS) });
    if (!answer.ok) throw new Error(String(answer.status));
    const shot = await answer.json();
    if (!held) {
      lastAt = performance.now();
      failures = 0;
      draw(shot);
      await explain.refresh();
    }
  } catch {
    failures += 1;
  }
  drawLink();
  clearTimeout(timer);
  const wait = Math.min(5000, EVERY_MS * 2 ** Math.min(failures, 3));
  timer = setTimeout(poll, Math.max(100, wait - (performance.now() - began)));
}

function freeze() {
  held = !held;
  $("hold").setAttribute("aria-pressed", String(held));
  setText($("hold"), held ? "Go on" : "Freeze");
  drawLink();
  poll();
}

function search(text) {
  table.query = text.trim().toLowerCase();
  table.arrange();
  drawAgain();
}

const KEYS = {
  "/": () => { $("search").focus(); $("search").select(); },
  j: () => table.move(1),
  k: () => table.move(-1),
  s: () => { table.sortNext(); drawAgain(); },
  r: () => { table.reverse(); drawAgain(); },
  p: freeze,
  "?": () => $("help").showModal(),
  0: () => { table.states.clear(); table.arrange(); drawAgain(); },
  Escape: () => { if (!explain.close() && $("search").value) { $("search").value = ""; search(""); } },
};
STATES.forEach((state, i) => { KEYS[i + 1] = () => toggle(state); });

const GRID_KEYS = {
  ArrowDown: () => table.move(1),
  ArrowUp: () => table.move(-1),
  PageDown: () => table.move(table.page()),
  PageUp: () => table.move(-table.page()),
  Home: () => table.rows.length && table.select(0),
  End: () => table.rows.length && table.select(table.rows.length - 1),
  Enter: () => table.openCursor(),
  " ": () => table.openCursor(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const typing = event.target === $("search");
  if (typing && !["Escape", "Enter"].includes(event.key)) return;
  const inGrid = event.target === $("grid") || event.target === document.body || (typing && event.key === "Enter");
  let action = KEYS[event.key];
  if (!action && inGrid) action = GRID_KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  if (typing && event.key === "Enter") {
    $("grid").focus({ preventScroll: true });
    table.move(table.cursorIndex() < 0 ? 1 : 0);
    return;
  }
  if (typing) $("search").blur();
  action();
});
$("search").addEventListener("input", (event) => search(event.target.value));
$("hold").addEventListener("click", freeze);
$("keys").addEventListener("click", () => $("help").showModal());
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
// On a telephone the sessions come first; what stands beside them is one touch away.
if (phone) for (const part of document.querySelectorAll("aside details")) part.open = false;
setInterval(drawLink, 1000);
poll();
