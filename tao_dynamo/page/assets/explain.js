// SPDX-License-Identifier: Apache-2.0
// One session, asked for anew with every snapshot while it is open.

const SHOWN_NODES = 12;

class Explain {
  constructor() {
    this.id = null;
    this.box = $("explain");
    this.asked = 0;
    this.lastFocus = null;
    this.names = {};
  }

  // Another session, while it is open anyway; the focus stays where it is.
  follow(id) {
    if (this.id === null) return;
    this.id = id;
    this.refresh();
  }

  async open(id) {
    if (this.id === null) this.lastFocus = document.activeElement;
    this.id = id;
    if (await this.refresh()) {
      this.box.scrollIntoView({ block: "nearest" });
      this.box.focus({ preventScroll: true });
    }
  }

  close() {
    if (this.id === null) return false;
    this.id = null;
    this.box.hidden = true;
    this.box.replaceChildren();
    if (this.lastFocus && this.lastFocus.isConnected) this.lastFocus.focus({ preventScroll: true });
    return true;
  }

  async refresh() {
    if (this.id === null) return false;
    const id = this.id;
    const asked = ++this.asked;
    let told;
    try {
      const answer = await fetch(`explain.json?session=${encodeURIComponent(id)}`, { signal: AbortSignal.timeout(4000) });
      told = await answer.json();
    } catch {
      return false;
    }
    if (this.id !== id || asked !== this.asked) return false;
    this.draw(id, told);
    return true;
  }

  draw(id, told) {
    const head = make("header");
    const title = make("h2", "", told.session_id || id);
    title.id = "explain-title";
    const close = make("button", "", "Close");
    close.type = "button";
    close.addEventListener("click", () => this.close());
    head.append(title, close);
    const hadFocus = this.box.contains(document.activeElement) && document.activeElement !== this.box;
    if (told.error) {
      this.box.replaceChildren(head, make("p", "says bad", told.error));
    } else {
      const pill = make("p", `pill is-${told.state}`);
      pill.append(make("i", "dot"), make("span", "", `${told.state} for ${seconds(told.for_s)}`));
      const facts = make("dl");
      setFacts(facts, this.facts(told));
      const says = make("p", `says${told.overdue ? " bad" : ""}`, this.says(told));
      this.box.replaceChildren(head, pill, says, facts, ...this.tools(told), ...this.nodes(told));
    }
    this.box.hidden = false;
    if (hadFocus) close.focus({ preventScroll: true });
  }

  says(told) {
    if (told.reason) {
      const late = told.overdue ? " It is overdue." : "";
      const reason = shortened(told.reason, this.names);
      return `${reason[0].toUpperCase()}${reason.slice(1)}.${late}`;
    }
    if (told.state === "running") return `Its turn runs${told.output ? `; ${tokens(told.output)} tokens are out` : ""}.`;
    if (told.state === "tool") return "It keeps its room while its tool runs.";
    return "It keeps its room and waits for its next turn.";
  }

  facts(told) {
    const facts = [];
    if (told.waited_s !== null) facts.push(["Its turn has waited", seconds(told.waited_s), told.overdue ? "bad" : ""]);
    if (told.node) facts.push(["Holds", `${tokens(told.held)} tokens on ${this.names[told.node] || told.node}`]);
    facts.push(["Needs", `${tokens(told.cost)} tokens`], ["Context so far", `${tokens(told.footprint)} tokens`]);
    if (told.state !== "running") facts.push(["Counts as ready", told.ready ? "yes" : "no"]);
    if (told.marked) facts.push(["At the end of its turn", "will be paused"]);
    if (told.parent) facts.push(["Part of", told.parent]);
    return facts;
  }

  table(caption, heads, rows) {
    const table = make("table");
    table.append(make("caption", "", caption));
    const head = make("tr");
    for (const text of heads) head.append(make("th", "", text));
    table.append(head);
    for (const cells of rows) {
      const line = make("tr");
      for (const [text, className] of cells) line.append(make("td", className || "", text));
      table.append(line);
    }
    return table;
  }

  tools(told) {
    if (!told.tool_calls.length) return [];
    const rows = told.tool_calls.map((call) => [
      [call.key || "tool"],
      [seconds(call.elapsed_s)],
      [seconds(call.remaining.seconds)],
      [SOURCES[call.remaining.source] || call.remaining.source],
    ]);
    return [this.table("Its tools", ["Tool", "Ran", "Back in", "By"], rows)];
  }

  nodes(told) {
    const rows = told.nodes.slice(0, SHOWN_NODES).map((choice) => {
      const here = choice.node === told.node;
      const fits = choice.adds <= choice.free;
      const verdict = here ? "is here" : choice.stale ? "stale" : fits ? "fits" : `${tokens(choice.adds - choice.free)} short`;
      const name = this.names[choice.node] || choice.node;
      const room = here ? ["", ""] : [tokens(choice.adds), tokens(choice.free)];
      return [[name], [tokens(choice.credit)], [room[0]], [room[1]], [verdict, here || fits ? "good" : "bad"]];
    });
    const more = told.nodes.length - rows.length;
    const caption = more > 0 ? `Nodes, the best ${rows.length} of ${told.nodes.length}` : "Nodes";
    return [this.table(caption, ["Node", "Credit", "Would add", "May get", ""], rows)];
  }
}
