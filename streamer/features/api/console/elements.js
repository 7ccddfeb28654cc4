/* The elements of sections. Data of the daemon are inserted as text, never as markup. */

import { bytes, cut, plural, runs, SENTENCE, words } from "./text.js"

const DRAWN = ["svg", "path", "line"]

/** An element. `on…` properties are listeners; properties and children that are null, undefined or false are left out. */
export function el(tag, props = {}, ...children) {
  const node = DRAWN.includes(tag) ? document.createElementNS("http://www.w3.org/2000/svg",
    tag) : document.createElement(tag)
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue
    if (key.startsWith("on")) node[key] = value
    else node.setAttribute(key, value === true ? "" : value)
  }
  node.append(...children.flat(3).filter(child => child !== null && child !== undefined && child !== false))
  return node
}

export const pieces = (chars, allowed) =>
  runs(chars, allowed).map(([text, hidden]) => hidden ? el("span", { class: "ctl" }, text) : text)

/** A name from outside: isolated, with invisible characters spelled out; a long one is shortened until it is opened. */
export function name(value, none = "–", most = undefined) {
  if (value === null || value === undefined || value === "") return el("span", { class: "none" }, none)
  const { all, head, isCut } = cut(value, most)
  const box = el("bdi", { class: "name" }, pieces(head))
  if (isCut) {
    const onclick = () => { box.replaceChildren(...pieces(all)); box.tabIndex = -1; box.focus() }
    box.append(el("button", { type: "button", class: "more", onclick }, `… ${plural(all.length, "character")}`))
  }
  return box
}

/** A cause in the streamer's own words: a name that may be longer. */
export const cause = (value, none = "") => name(value, none, SENTENCE)

export const button = (label, onclick, props = {}) => el("button", { type: "button", onclick, ...props }, label)
export const pill = (kind, text) => el("span", { class: `pill ${kind}` }, text)
export const empty = text => el("p", { class: "empty" }, text)
export const wrongs = () => el("div", { class: "wrong", role: "alert" })
export const stack = (...children) => el("span", { class: "stack" }, children)
export const actions = (...children) => el("div", { class: "actions" }, children)
export const card = (title, ...children) => el("section", { class: "card" }, title && el("h2", {}, title), children)
export const way = row => el("span", { class: "way" }, name(row.ingress), " → ", name(row.egress))
export const flow = row => el("div", { class: "flow" }, name(row.source),
  row.sink ? [el("span", { class: "to" }, " → "), name(row.sink)] : null)

const STATES = { up: "good", ok: "good", down: "bad", failed: "bad" }
export const state = value => pill(STATES[value] ?? "warn", words(value))

/** The state of an endpoint. One on standby has no connection, and that is how it should be. */
export const stateOf = ({ state: its, last_error }, pair) =>
  pair && pair.role !== "active" && its === "down" && !last_error ? pill("plain", "on standby") : state(its)

export function properties(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined)
  return el("dl", { class: "properties" },
    known.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value ?? "–"))))
}

/** The rows of a table. columns: {head, label, cell(row), num, wide}. */
export function lines(columns, rows) {
  return rows.map(row => el("tr", { role: "row" }, columns.map((column, i) => el(i ? "td" : "th", {
    class: [column.num && "num", column.wide].filter(Boolean).join(" ") || null,
    scope: i ? null : "row", role: i ? "cell" : "rowheader", "data-head": column.label ?? column.head,
  }, column.cell(row)))))
}

/** A table, or the sentence `none`. On a phone each row becomes a card; the roles keep it a table for screen readers. */
export function table(caption, columns, rows, none, body = el("tbody", { role: "rowgroup" }, lines(columns, rows))) {
  if (none !== undefined && !rows.length) return empty(none)
  const heads = columns.map(({ head, num }) => el("th", { scope: "col", role: "columnheader", class: num && "num" }, head))
  return el("div", { class: "scroll" }, el("table", { role: "table" }, el("caption", { class: "unseen" }, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads)), body))
}

/** The payload of a message. `role`: "group" where there are many, because a region is a landmark, which is there once. */
export function payload(given, role = "region") {
  if (!given) return null
  const { json, text, hex, left_out_bytes: more } = given
  const shown = json !== undefined ? JSON.stringify(json, null, 2) : text ?? (hex ?? "").replace(/(..)/g, "$1 ").trim()
  return [
    el("pre", { tabindex: 0, role, "aria-label": "Payload" }, shown ? pieces(shown, "\n\t") : name("", "empty")),
    more ? el("p", { class: "hint" }, `${plural(more, "byte")} more are left out.`) : null,
  ]
}

/** The beginning of a payload in a table, as the field of `payloadChoice` asks for it, and how much more there is. */
export const beginning = row => row.payload
  ? [payload(row.payload, "group"), row.cut_bytes ? el("small", {}, `${bytes(row.cut_bytes)} more`) : null] : name("")

// ---------------------------------------------------------------- forms

let serial = 0

/** A labelled control. `choices` make a select: texts, or [value, text]. */
export function field(label, key, { choices, hint, ...props } = {}) {
  const id = `field${++serial}`
  const described = { id, name: key, "aria-describedby": hint && `${id}-hint`, ...props }
  const options = choices?.map(each => Array.isArray(each) ? each : [each, words(each)])
  const control = options
    ? el("select", described, options.map(([value, text]) => el("option", { value }, text)))
    : el("input", { type: "text", autocomplete: "off", spellcheck: "false", ...described })
  return el("div", { class: "field" }, el("label", { for: id }, label), control,
    hint && el("small", { id: `${id}-hint` }, hint))
}

export const anyOf = choices => [["", "any"], ...choices.map(each => [each, words(each)])]

export const payloadChoice = () => field("Payload", "payload", { choices: [["length", "its length"], ["json", "as JSON"],
  ["text", "as text"], ["hex", "as hex"], ["none", "nothing of it"]] })

/** The values of a form's fields. */
export function values(form) {
  const all = [...new FormData(form)].map(([key, value]) => [key, value.trim()])
  return Object.fromEntries(all.filter(([, value]) => value !== ""))
}

export function fill(form, params) {
  for (const [key, value] of params) if (form.elements[key]) form.elements[key].value = value
}

/** A form that shows a failure in itself, and keeps its values then. */
export function form(fields, label, run, ...more) {
  const wrong = wrongs(), submit = el("button", { class: "primary" }, label)
  const onsubmit = event => { event.preventDefault(); attempt(wrong, submit, () => run(values(node))) }
  const node = el("form", { onsubmit }, el("div", { class: "fields" }, fields), actions(submit, more), wrong)
  return node
}

/** Run an action, one at a time; show in `wrong` why it failed. */
export async function attempt(wrong, control, run) {
  if (control.getAttribute("aria-disabled")) return
  wrong.replaceChildren()
  control.setAttribute("aria-disabled", "true")
  try { await run() } catch (error) { show(wrong, error) } finally { control.removeAttribute("aria-disabled") }
}

export function show(wrong, error) {
  if (error.name === "AbortError") return
  const problems = (error.problems ?? []).map(each => el("li", {}, name(each)))
  wrong.replaceChildren(el("p", {}, pieces(error.message)), ...problems.length ? [el("ul", {}, problems)] : [])
}

/** Announce the result of an action. */
export function announce(text) {
  const status = document.getElementById("status")
  clearTimeout(announce.timer)
  status.textContent = ""
  announce.timer = setTimeout(() => {
    status.textContent = text // later, so that a text that comes twice is read twice
    announce.timer = setTimeout(() => { status.textContent = "" }, 8000)
  }, 50)
}

/** A dialog. `run` gets the values of its form; if it fails,
  the dialog stays and says why. Resolves to whether it was done. */
export function ask({ title, body = [], label, run, isDanger = false, other = [], cancel = "Cancel" }) {
  const { promise, resolve } = Promise.withResolvers()
  const opener = document.activeElement
  const wrong = wrongs(), id = `dialog${++serial}`
  const close = button(cancel, () => dialog.close(), { autofocus: isDanger || !run })
  const go = run && el("button", { class: isDanger ? "primary danger" : "primary" }, label)
  let isDone = false
  const onsubmit = event => {
    event.preventDefault()
    if (go) attempt(wrong, go, async () => { await run(values(inner)); isDone = true; dialog.close() })
  }
  const inner = el("form", { onsubmit }, el("h2", { id }, title), body, wrong, actions(go, other, close))
  const onclose = () => {
    dialog.remove()
    const back = opener?.isConnected && opener !== document.body ? opener : document.querySelector("main h1")
    back?.focus()
    resolve(isDone)
  }
  const dialog = el("dialog", { "aria-labelledby": id, onclose }, inner)
  document.body.append(dialog)
  dialog.showModal()
  return promise
}

