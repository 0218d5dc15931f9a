// SPDX-License-Identifier: Apache-2.0
// The table of sessions. Only the rows that can be seen are in the document, however many sessions there are.

const OVERSCAN = 6;

function bestCredit(row) {
  let best = null;
  for (const node in row.credits) if (best === null || row.credits[node] > best[1]) best = [node, row.credits[node]];
  return best;
}

function stateText(row) {
  return row.place ? `${row.state} #${row.place}` : row.state;
}

function since(row) {
  return row.state === "waiting" && row.waited_s !== undefined ? row.waited_s : row.for_s;
}

function creditText(row, names) {
  const best = bestCredit(row);
  if (best === null) return "";
  const more = Object.keys(row.credits).length - 1;
  return `${tokens(best[1])} @ ${names[best[0]] || best[0]}${more ? ` +${more}` : ""}`;
}

// Reasons name nodes by their whole ids, which are twenty digits long.
function shortened(text, names) {
  for (const node in names) if (text.includes(node)) text = text.replaceAll(node, names[node]);
  return text;
}

// Why a session has no room, else what it does.
function whyText(row, names) {
  if (row.reason) return shortened(row.reason, names);
  const says = [];
  if (row.marked) says.push("will be paused when its turn ends");
  if (row.state === "running") says.push(row.output ? `${tokens(row.output)} tokens out` : "no token yet");
  if (row.state === "idle") says.push("its next turn has not come");
  if (row.state === "tool") says.push(`holds ${tokens(row.held)} tokens`);
  if (row.ready && row.state === "tool") says.push("about to return");
  if (row.parent) says.push(`part of ${row.parent}`);
  return says.join(", ");
}

function sumText(row, names) {
  if (row.state === "waiting") return shortened(row.reason, names);
  const says = [];
  if (row.tool) {
    says.push(`${row.tool} for ${seconds(row.tool_elapsed_s)}, ${seconds(row.returns_in_s)} left`);
  }
  if (row.node) says.push(`${tokens(row.held)} tokens on ${names[row.node] || row.node}`);
  if (row.state === "running") says.push(whyText(row, names));
  return says.join(" · ") || whyText(row, names);
}

// How much of the tool call is over, as a line under its name.
function setDone(cell, row) {
  const whole = (row.tool_elapsed_s || 0) + (row.returns_in_s || 0);
  const done = row.tool && whole > 0 ? `${Math.round((100 * row.tool_elapsed_s) / whole)}%` : "0%";
  if (cell.style.getPropertyValue("--done") !== done) cell.style.setProperty("--done", done);
}

const order = (value) => (value === undefined || value === null ? Infinity : value);

const COLUMNS = [
  { key: "state", title: "State", text: stateText, by: (row) => STATES.indexOf(row.state) * 1e7 + row.place },
  { key: "id", title: "Session", text: (row) => row.session || row.id, by: (row) => row.id },
  { key: "for", title: "For", number: true, down: true, text: (row) => seconds(since(row)), by: since },
  { key: "context", title: "Tokens", number: true, down: true, text: (row) => tokens(row.cost), by: (row) => row.cost || 0 },
  { key: "credit", title: "Credit", down: true, text: creditText, by: (row) => (bestCredit(row) || [0, 0])[1] },
  { key: "node", title: "Node", text: (row, names) => names[row.node] || row.node || "", by: (row) => row.node || "\uffff" },
  {
    key: "tool", title: "Tool", by: (row) => row.tool || "\uffff",
    text: (row) => (row.tool ? row.tool + (row.calls > 1 ? ` ×${row.calls}` : "") : ""),
  },
  {
    key: "ran", title: "Ran", number: true, down: true, by: (row) => order(row.tool_elapsed_s),
    text: (row) => seconds(row.tool_elapsed_s),
  },
  {
    key: "left", title: "Back in", number: true, by: (row) => order(row.returns_in_s),
    text: (row) => seconds(row.returns_in_s),
  },
  { key: "why", title: "Why", text: whyText, by: (row) => whyText(row, {}) },
];

class Table {
  // onOpen hears of the session to explain, onMove of the one that the cursor is on.
  constructor(onOpen, onMove) {
    this.onOpen = onOpen;
    this.onMove = onMove;
    this.all = [];
    this.rows = [];
    this.names = {};
    this.query = "";
    this.states = new Set();
    this.sort = null;
    this.down = false;
    this.cursor = null;
    this.pool = [];
    this.box = $("rows");
    this.grid = $("grid");
    this.height = 34;
    this.makeHead();
    this.grid.setAttribute("aria-colcount", String(COLUMNS.length));
    this.box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.open(Number(row.dataset.index));
    });
    addEventListener("scroll", () => this.draw(), { passive: true });
    addEventListener("resize", () => this.measure());
    this.measure();
  }

  makeHead() {
    COLUMNS.forEach((column) => {
      const cell = make("div", column.key + (column.number ? " num" : ""));
      cell.setAttribute("role", "columnheader");
      const button = make("button", "", column.title);
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(column));
      cell.append(button);
      $("head").append(cell);
    });
  }

  measure() {
    this.height = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 34;
    this.place();
    this.draw();
  }

  // A column once: its own direction; again: reversed; a third time: the router's own order.
  sortBy(column) {
    if (this.sort !== column) {
      this.sort = column;
      this.down = Boolean(column.down);
    } else if (this.down === Boolean(column.down)) this.down = !this.down;
    else this.sort = null;
    this.arrange();
  }

  sortNext() {
    const next = COLUMNS[(COLUMNS.indexOf(this.sort) + 1) % COLUMNS.length];
    this.sort = next;
    this.down = Boolean(next.down);
    this.arrange();
  }

  reverse() {
    this.down = !this.down;
    this.arrange();
  }

  show(sessions, names) {
    this.all = sessions;
    this.names = names;
    this.arrange();
  }

  matches(row) {
    if (this.states.size && !this.states.has(row.state)) return false;
    if (!this.query) return true;
    const node = row.node ? `${row.node} ${this.names[row.node] || ""}` : "";
    return `${row.id} ${row.tool || ""} ${node} ${row.reason || ""} ${row.parent || ""}`.toLowerCase().includes(this.query);
  }

  arrange() {
    this.rows = this.all.filter((row) => this.matches(row));
    const column = this.sort;
    if (column) {
      const sign = this.down ? -1 : 1;
      const keyed = this.rows.map((row, i) => [column.by(row), i, row]);
      keyed.sort((a, b) => {
        const [x, y] = [a[0], b[0]];
        if (x === Infinity || y === Infinity) return x === y ? a[1] - b[1] : x === Infinity ? 1 : -1;
        return x < y ? -sign : x > y ? sign : a[1] - b[1];
      });
      this.rows = keyed.map((item) => item[2]);
    }
    [...$("head").children].forEach((cell, i) => {
      if (COLUMNS[i] === column) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.grid.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.place();
    this.draw();
  }

  place() {
    this.box.style.height = `${this.rows.length * this.height}px`;
  }

  rowElement() {
    const element = make("div", "row");
    element.setAttribute("role", "row");
    for (const column of COLUMNS) {
      const cell = make("span", column.key + (column.number ? " num" : ""));
      cell.setAttribute("role", "gridcell");
      if (column.key === "state") cell.append(make("i", "dot"), make("span"));
      element.append(cell);
    }
    const sum = make("span", "sum");
    sum.setAttribute("role", "gridcell");
    element.append(sum);
    this.box.append(element);
    return element;
  }

  draw() {
    const top = this.box.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / this.height) - OVERSCAN);
    const last = Math.min(this.rows.length, Math.ceil((innerHeight - top) / this.height) + OVERSCAN);
    const wanted = Math.max(0, last - first);
    const size = Math.ceil(innerHeight / this.height) + 2 * OVERSCAN + 2;
    while (this.pool.length < Math.min(size, wanted)) this.pool.push(this.rowElement());
    const used = new Set();
    for (let i = first; i < last; i++) {
      const slot = i % this.pool.length;
      used.add(slot);
      this.fill(this.pool[slot], i);
    }
    this.pool.forEach((element, slot) => {
      if (!used.has(slot)) element.hidden = true;
    });
    const at = this.cursorIndex();
    if (at >= first && at < last) this.grid.setAttribute("aria-activedescendant", `row-${at}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  fill(element, index) {
    const row = this.rows[index];
    element.hidden = false;
    if (element.dataset.index !== String(index) || element.dataset.height !== String(this.height)) {
      element.dataset.index = String(index);
      element.dataset.height = String(this.height);
      element.id = `row-${index}`;
      element.setAttribute("aria-rowindex", String(index + 2));
      element.style.transform = `translateY(${index * this.height}px)`;
    }
    setClass(element, `row is-${row.state}${row.overdue ? " overdue" : ""}`);
    const selected = String(row.id === this.cursor);
    if (element.getAttribute("aria-selected") !== selected) element.setAttribute("aria-selected", selected);
    COLUMNS.forEach((column, i) => {
      const cell = element.children[i];
      const text = column.text(row, this.names);
      setText(column.key === "state" ? cell.lastChild : cell, text);
      if (column.key === "why" && cell.title !== text) cell.title = text;
      if (column.key === "tool") setDone(cell, row);
    });
    setText(element.lastChild, sumText(row, this.names));
  }

  cursorIndex() {
    return this.cursor === null ? -1 : this.rows.findIndex((row) => row.id === this.cursor);
  }

  move(step) {
    if (!this.rows.length) return;
    const at = this.cursorIndex();
    const to = at < 0 ? (step < 0 ? this.rows.length - 1 : 0) : at + step;
    this.select(Math.max(0, Math.min(this.rows.length - 1, to)));
    this.onMove(this.cursor);
  }

  select(index) {
    this.cursor = this.rows[index].id;
    const top = this.box.getBoundingClientRect().top + index * this.height;
    const head = $("head").offsetHeight;
    if (top < head) scrollBy(0, top - head);
    else if (top + this.height > innerHeight) scrollBy(0, top + this.height - innerHeight + 4);
    this.draw();
  }

  page() {
    return Math.max(1, Math.floor(innerHeight / this.height) - 2);
  }

  open(index) {
    this.select(index);
    this.onOpen(this.cursor);
  }

  openCursor() {
    if (this.cursorIndex() >= 0) this.onOpen(this.cursor);
  }
}
