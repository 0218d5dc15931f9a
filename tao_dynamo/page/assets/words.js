// SPDX-License-Identifier: Apache-2.0
// Times, tokens and states in words; and the few ways in which text gets into the document. Session ids and reasons come
// from clients: they are set as text, never as markup, and the page's security policy allows nothing else.
"use strict";

const STATES = ["waiting", "paused", "running", "tool", "idle"];

const SOURCES = {
  progress: "the tool reports progress",
  declared: "declared by the caller",
  timeout: "its timeout",
  sleep: "the sleep in its command",
  history: "earlier calls of this kind",
  global: "all earlier calls",
  default: "nothing known of it",
};

function $(id) {
  return document.getElementById(id);
}

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

// Seconds, as short as they can be read: 0.4 s, 12 s, 3:07, 2 h 05.
function seconds(s) {
  if (s === null || s === undefined) return "";
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 99.5) return `${Math.round(s)} s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

// Tokens and counts: 812, 4.2k, 131k, 2.1M.
function tokens(n) {
  if (n === null || n === undefined) return "";
  if (n < 1000) return String(n);
  if (n < 9950) return `${(n / 1000).toFixed(1)}k`;
  if (n < 999500) return `${Math.round(n / 1000)}k`;
  return `${(n / 1e6).toFixed(n < 9.95e6 ? 1 : 0)}M`;
}

function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "";
}

function milliseconds(s) {
  return s < 0.0995 ? `${(s * 1000).toFixed(1)} ms` : s < 1 ? `${Math.round(s * 1000)} ms` : seconds(s);
}

function plural(n, one, many) {
  return `${n} ${n === 1 ? one : many || `${one}s`}`;
}

// The rows of a description list, [term, text, class]; only what has changed is touched.
function setFacts(list, facts) {
  while (list.children.length > 2 * facts.length) list.lastChild.remove();
  while (list.children.length < 2 * facts.length) list.append(make("dt"), make("dd"));
  facts.forEach(([term, text, className], i) => {
    setText(list.children[2 * i], term);
    setText(list.children[2 * i + 1], String(text));
    setClass(list.children[2 * i + 1], className || "");
  });
}

// As many children as there are items, each made once and then updated.
function setItems(parent, items, create, update) {
  while (parent.children.length > items.length) parent.lastChild.remove();
  while (parent.children.length < items.length) parent.append(create());
  items.forEach((item, i) => update(parent.children[i], item));
}
