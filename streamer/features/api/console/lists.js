/* The sections that show a long list in pages: flows, subscriptions, last values, dead letters. */

import { get, getPermitted, hasToken, post, query } from "./daemon.js"
import { actions, announce, anyOf, ask, attempt, beginning, button, card, el, empty, field, fill, flow, form, name, payload,
  payloadChoice, pill, properties, stack, table, values, way, wrongs } from "./elements.js"
import { about, model } from "./live.js"
import { page, redraw, refresh } from "./page.js"
import { ago, bytes, clock, count, moment, plural, said, span, words } from "./text.js"

const ROWS = 100
const REDRIVE_S = 2 // how often the state of the redriven letters is requested
const PATTERN = { placeholder: "//veh1/FFFFFFFF/FF/FFFF" }
const CODES = ["CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
  "UNAVAILABLE", "DATA_LOSS"]

/** A filter, a table, and buttons for its pages. `tools` are beside the number of rows; `onAnswer` gets each page.
 *
 * `isWanted`: whether to request a list that `getPermitted` reads, which may prompt for the token: not out of the blue. */
class List {
  cursors = []
  answer = null

  constructor({ section, rows = section, one, caption, columns, fields, none, tools = () => null, onAnswer = () => {},
    read = get, label = "Filter" }) {
    Object.assign(this, { section, rows, one, caption, columns, none, tools, onAnswer, read, isWanted: hasToken() })
    this.box = el("div")
    this.steps = actions()
    this.entry = form(fields, label, () => this.apply(),
      button("Clear", () => { this.entry.reset(); this.entry.requestSubmit() }))
    fill(this.entry, page.params)
    this.filter = values(this.entry)
    this.nodes = [card(null, this.entry), card(null, this.steps, this.box)]
  }

  async apply() {
    this.cursors = []
    this.filter = values(this.entry)
    history.replaceState(null, "", `#${this.section}${query(this.filter)}`)
    this.isWanted = true
    await refresh()
  }

  async refresh(signal) {
    const asked = query({ ...this.filter, limit: ROWS, after: this.cursors.at(-1) })
    this.isWanted = hasToken()
    const answer = this.answer = await this.read(`/${this.section}${asked}`, signal)
    this.isWanted = true
    const rows = answer[this.rows]
    if (!rows.length && this.cursors.length) { this.cursors.pop(); await this.refresh(signal); return }
    this.onAnswer(answer)
    redraw(this.box, table(this.caption, this.columns(rows), rows, this.none(answer, this.filter)))
    this.drawSteps()
  }

  drawSteps() {
    const { total, total_bytes, next } = this.answer, pages = this.cursors.length
    const step = (label, isPossible, change) => button(label, () => { change(); this.isWanted = true; refresh() },
      { "data-keep": label, disabled: !isPossible })
    const isLong = pages > 0 || next !== null
    redraw(this.steps,
      el("span", { class: "total" }, plural(total, this.one), total_bytes ? `, ${bytes(total_bytes)}` : ""),
      this.tools(this.answer),
      isLong && el("span", { class: "pages" },
        el("span", { class: "hint" }, `page ${count(pages + 1)} of ${count(Math.ceil(total / ROWS))}`),
        step("First", pages > 0, () => { this.cursors = [] }), step("Back", pages > 0, () => this.cursors.pop()),
        step("Next", next !== null, () => this.cursors.push(next))))
  }
}

// ---------------------------------------------------------------- flows, subscriptions

/** Why a flow waits: its endpoint is not up, or what holds the flow itself. */
function heldBy({ endpoint_state, held = [] }) {
  const isDown = endpoint_state !== undefined && endpoint_state !== "up"
  if (!isDown && !held.length) return name("", "no")
  return [isDown && pill("bad", `endpoint ${words(endpoint_state)}`),
    held.map(why => pill("warn", words(why)))]
}

function links({ route, endpoint, source, sink }) {
  const given = { pause: { topic: source, sink }, tap: { route, source, sink } }
  return el("span", { class: "links" }, Object.entries(given).map(([section, params]) => el("a", {
    href: `#${section}${query(params)}`, "aria-label": `${section} ${said(source)}`,
    "data-keep": `${section} ${route} ${endpoint} ${source} ${sink}`,
  }, section)))
}

export function flows(root) {
  const list = new List({
    section: "flows", one: "flow", caption: "Flows",
    none: () => "No flow like that has waiting messages: all that arrived are being sent, or delivered.",
    fields: [
      field("State", "state", { choices: [["", "waiting"], ["held", "held for any reason"], ["paused", "paused"],
        ["absent", "its receiver is absent"], ["backoff", "backing off"],
        ["unconfirmed", "too many of its messages are unconfirmed"], ["rate", "its rate is used up"],
        ["window", "the window is full"], ["all", "all flows"]] }),
      field("Route", "route"), field("Endpoint", "endpoint"), field("Source", "source", PATTERN), field("Sink", "sink"),
    ],
    columns: () => [
      { head: "Flow", wide: "wide", cell: flow }, { head: "Route", wide: "mid", cell: row => name(row.route) },
      { head: "Endpoint", wide: "mid", cell: row => name(row.endpoint) },
        { head: "Priority", cell: row => said(row.priority) },
      { head: "Waiting", num: true, cell: row => count(row.waiting) },
        { head: "Size", num: true, cell: row => bytes(row.bytes) },
      { head: "Unconfirmed", num: true, cell: row => count(row.unconfirmed) },
      { head: "Oldest", num: true, cell: row => span(row.oldest_age_s) },
      { head: "Held", cell: row => heldBy(row) },
      { head: "Action", cell: links },
    ],
  })
  root.append(...list.nodes)
  page.every_s = 5
  page.on.paused = () => refresh()
  return signal => list.refresh(signal)
}

const SERVICES = {
  here: "This streamer is the uSubscription service of its device.",
  external: "Another service keeps the subscriptions of this device; the streamer follows it.",
  none: "This device has no uSubscription service: routes forward what they publish.",
}

export function subscriptions(root) {
  const note = el("p", { class: "hint" })
  const list = new List({
    section: "subscriptions", one: "subscription", caption: "Subscriptions",
      none: () => "There is no subscription like that.",
    fields: [field("Topic", "topic", { placeholder: "//veh1/A8000/2/8A50" }), field("Subscriber", "subscriber")],
    columns: () => [
      { head: "Topic", wide: "wide", cell: row => name(row.topic) },
        { head: "Subscriber", cell: row => name(row.subscriber) },
      { head: "State", cell: row => pill(row.state.toLowerCase() === "subscribed" ? "good" : "warn", words(row.state)) },
      { head: "Expires", cell: row => row.expires ? `${moment(row.expires)} UTC` : "never" },
      { head: "Sample period", num: true, cell: row => row.sample_period_ms ? `${count(row.sample_period_ms)} ms` : "–" },
      { head: "Version", num: true, cell: row => said(row.version) },
    ],
    onAnswer: ({ service, observers }) => {
      note.textContent = `${SERVICES[service] ?? ""} ${plural(observers ?? 0, "observer")}.`
    },
  })
  root.append(note, ...list.nodes)
  page.every_s = 15
  return signal => list.refresh(signal)
}

// ---------------------------------------------------------------- last values

const UTWIN_OFF = "uTwin is off: the streamer keeps no last values. utwin: {} in its configuration turns it on."

/** As a tap, it is shown on request; so it has a button for the present values, and no row moves while it is read. */
export function lastValues(root) {
  const list = new List({
    section: "last-values", rows: "values", one: "topic", caption: "Last values", read: getPermitted, label: "Show",
    none: ({ is_on }, { topic }) => !is_on ? UTWIN_OFF
      : topic ? "No topic like that is known: none came, or it has expired or was forgotten."
      : "Nothing is known yet: no Publish has come since uTwin is on.",
    fields: [field("Topic", "topic", PATTERN), payloadChoice()],
    columns: () => [
      { head: "Topic", wide: "wide", cell: row => name(row.topic) },
      { head: "Age", wide: "mid", cell: row => stack(ago(row.age_s),
        el("small", {}, el("time", { datetime: row.at }, moment(row.at)), " UTC")) },
      { head: "TTL", num: true, cell: row => row.ttl_ms ? span(row.ttl_ms / 1000) : "none" },
      { head: "Size", num: true, cell: row => bytes(row.bytes) },
      { head: "Payload", cell: row => stack(beginning(row), el("small", {}, words(row.payload_format))) },
    ],
    tools: () => el("span", { class: "hint" }, `as of ${clock(new Date().toISOString())} UTC`),
  })
  root.append(...list.nodes)
  page.on.config = () => refresh()
  return async signal => {
    if (list.isWanted) { await list.refresh(signal); return }
    const { config } = await get("/config", signal)
    if (list.isWanted) return // meanwhile, they were shown
    redraw(list.box, empty(config.utwin ? "Press Show to see them. As for a tap, that needs the token." : UTWIN_OFF))
  }
}

// ---------------------------------------------------------------- dead letters

export function deadLetters(root) {
  const fresh = actions(), report = el("div"), groups = el("div", { class: "reasons" }), selected = new Set()
  const select = (number, isOn) => { selected[isOn ? "add" : "delete"](number); list.drawSteps() }
  const checkbox = (label, keep, isOn, change) => {
    const box = el("input", { type: "checkbox", "aria-label": label, "data-keep": keep, onclick: () => change(box.checked) })
    box.checked = isOn
    return box
  }
  const list = new List({
    section: "dead-letters", rows: "dead_letters", one: "dead letter", caption: "Dead letters",
    none: () => "There is no dead letter like that: accepted messages were delivered, or still wait.",
    fields: [
      field("Reason", "reason", { choices: anyOf(CODES) }), field("Route", "route"), field("Source", "source", PATTERN),
      field("Sink", "sink"), field("Older than", "older_than", { placeholder: "2h" }),
      field("Newer than", "newer_than", { placeholder: "30m" }), field("Id", "id"),
      field("Order", "order", { choices: [["", "oldest first"], ["newest", "newest first"]] }),
    ],
    columns: rows => [
      { label: "Selected", cell: row => checkbox(`Select ${row.id}`, `select ${row.number}`, selected.has(row.number),
        isOn => select(row.number, isOn)),
        head: checkbox("Select all on this page", "all", rows.length > 0 && rows.every(row => selected.has(row.number)),
          isOn => {
          for (const row of rows) selected[isOn ? "add" : "delete"](row.number)
          for (const box of list.box.querySelectorAll("tbody input")) box.checked = isOn
          list.drawSteps()
        }) },
      { head: "Given up", cell: row => stack(el("time", { datetime: row.when }, moment(row.when)),
        el("small", {}, ago(row.age_s))) },
      { head: "Reason", cell: row => stack(el("b", {}, words(row.reason)), el("small", {}, name(row.text, ""))) },
      { head: "Message", wide: "wide", cell: row => stack(flow(row), el("small", {}, said(row.type))) },
      { head: "Route", wide: "mid", cell: row => name(row.route) },
        { head: "Attempts", num: true, cell: row => count(row.attempts) },
      { head: "Size", num: true, cell: row => bytes(row.size) },
      { head: "Action", cell: row => stack(
        button("Show", () => show(row), { "data-keep": `show ${row.number}`, "aria-label": `Show ${row.id}` }),
        row.redrive && pill("warn", "to be redriven")) },
    ],
    tools: ({ total }) => [
      button(`Redrive selected (${count(selected.size)})`, () => redrive(chosen()),
        { "data-keep": "redrive", disabled: !selected.size }),
      button(`Purge selected (${count(selected.size)})`, () => purge(chosen()),
        { "data-keep": "purge", disabled: !selected.size }),
      button(`Redrive all ${count(total)}`, () => redrive(all(total)), { "data-keep": "redrive all", disabled: !total }),
      button(`Purge all ${count(total)}`, () => purge(all(total)), { "data-keep": "purge all", disabled: !total }),
    ],
    onAnswer: ({ dead_letters: found }) => {
      page.every_s = found.some(row => row.redrive) ? REDRIVE_S : undefined
      model.newLetters = 0
      redraw(fresh)
    },
  })

  /** How many there are for each reason, unless one reason is all that is shown. */
  async function drawGroups(signal) {
    const { order, ...filter } = list.filter
    const { reasons } = await get(`/dead-letters/reasons${query(filter)}`, signal)
    const only = ({ reason, number }) => all(number, { ...filter, reason })
    redraw(groups, reasons.length > 0 && !filter.reason && card("By reason", table("Dead letters by reason", [
      { head: "Reason", cell: row => el("b", {}, words(row.reason)) },
      { head: "Dead letters", num: true, cell: row => count(row.number) },
      { head: "Latest", cell: row => el("time", { datetime: row.newest }, moment(row.newest)) },
      { head: "Action", cell: row => el("span", { class: "actions" },
        button("List", () => { list.entry.elements.reason.value = row.reason; list.entry.requestSubmit() },
          { "data-keep": `list ${row.reason}`, "aria-label": `List ${words(row.reason)}` }),
        button("Redrive…", () => redrive(only(row)),
          { "data-keep": `redrive ${row.reason}`, "aria-label": `Redrive all with ${words(row.reason)}` }),
        button("Purge…", () => purge(only(row)),
          { "data-keep": `purge ${row.reason}`, "aria-label": `Purge all with ${words(row.reason)}` })) },
    ], reasons)))
  }

  const chosen = () => ({ which: { numbers: [...selected] }, text: `${plural(selected.size, "selected dead letter")}.` })
  const single = row => ({ which: { numbers: [row.number] }, text: ["This one: ", flow(row)] })
  const all = (total, { order, ...filter } = list.filter) => {
    const entries = Object.entries(filter)
    if (!entries.length) return { which: { all: true }, text: `${plural(total, "dead letter")}: all that there are.` }
    const terms = entries.map(([key, value]) => el("li", {}, `${words(key)}: `, name(value)))
    return { which: { filter }, text: [`${plural(total, "dead letter")}, all with`, el("ul", {}, terms)] }
  }
  const done = async text => { selected.clear(); announce(text); about(); await refresh() }

  const redrive = ({ which, text }) => {
    const seconds = field("Seconds", "seconds", { type: "number", min: "0.001", step: "any", value: "30" })
    seconds.hidden = true
    const ttl = field("TTL", "ttl", { choices: [["", "the rest of their own"], ["new", "a new one, from now on"],
      ["0", "none"]] })
    ttl.onchange = event => { seconds.hidden = event.target.value !== "new" }
    return ask({
      title: "Redrive", label: "Redrive", body: [el("div", {}, text), el("div", { class: "fields" }, ttl, seconds),
        el("p", { class: "hint" },
          "They are sent again with their ids, over today’s routes. Those that still fail remain dead letters.")],
      run: async given => {
        const ttl_ms = { new: Math.round(Number(given.seconds) * 1000), 0: 0 }[given.ttl]
        const answer = await post("/dead-letters/redrive", { ...which, ...ttl_ms === undefined ? {} : { ttl_ms } })
        redraw(report, remaining(answer))
        await done(`${plural(answer.redriven, "dead letter")} redriven.`)
      },
    })
  }

  const purge = ({ which, text }) => ask({
    title: "Purge", label: "Delete for good", isDanger: true,
    body: [el("div", {}, text), el("p", { class: "hint" },
      "They are deleted from the journal, and cannot be redriven any more.")],
    run: async () => {
      const { purged } = await post("/dead-letters/purge", which)
      redraw(report)
      await done(`${plural(purged, "dead letter")} deleted.`)
    },
  })

  function show(row) {
    const content = el("div", { class: "section", "aria-live": "polite" }), wrong = wrongs()
    const load = button("Show its content", () => attempt(wrong, load, async () => {
      const full = await getPermitted(`/dead-letters/${row.number}`)
      content.replaceChildren(...full.content ? contentOf(full.content).filter(Boolean) : [name(full.problem)])
      load.remove()
    }))
    const then = (label, act) => button(label, event => { event.target.closest("dialog").close(); act(single(row)) })
    return ask({ title: "Dead letter", cancel: "Close", other: [load, then("Redrive…", redrive), then("Purge…", purge)],
      body: [properties([
        ["Id", el("code", {}, said(row.id))], ["Type", said(row.type)], ["Source", name(row.source)],
          ["Sink", name(row.sink)],
        ["Reason", el("span", {}, el("code", {}, said(row.reason)), " ", name(row.text, ""))],
          ["Outcome", words(row.outcome)],
        ["Route", name(row.route)], ["Endpoints", way(row)], ["Attempts", count(row.attempts)],
        ["Accepted", `${moment(row.first)} UTC`], ["Given up", `${moment(row.when)} UTC`],
        ["Redrive", row.redrive ? `requested at ${moment(row.redrive)} UTC` : undefined],
      ]), wrong, content] })
  }

  root.append(fresh, report, list.nodes[0], groups, list.nodes[1])
  page.on.dead_letter = () => redraw(fresh,
    button(`Show ${plural(model.newLetters, "new dead letter")}`, () => refresh(), { "data-keep": "fresh" }))
  return async signal => {
    if (model.about && !model.about.journal) {
      redraw(list.box, empty("There is no journal, so no dead letters are kept. They went to the dead letter topic."))
      return
    }
    await list.refresh(signal)
    if (!list.cursors.length) await drawGroups(signal)
  }
}

const remaining = ({ redriven, not_redriven: some, not_redriven_total: total }) => total > 0 && el("div", { class: "note" },
  el("p", {}, `${plural(redriven, "dead letter")} redriven, ${count(total)} not:`),
  el("ul", {}, some.map(each => el("li", {}, el("code", {}, said(each.id)), " ", name(each.why)))),
  total > some.length ? el("p", {}, `and ${count(total - some.length)} more.`) : null)

const contentOf = message => [properties([
  ["Created", `${moment(message.created)} UTC`], ["TTL", message.ttl_ms ? `${count(message.ttl_ms)} ms` : "none"],
  ["Deadline", message.deadline ? `${moment(message.deadline)} UTC` : "none"], ["Priority", said(message.priority)],
  ["Permission level", name(message.permission_level)], ["Commstatus", name(message.commstatus)],
    ["Request id", name(message.reqid)],
  ["Traceparent", name(message.traceparent)], ["Token", name(message.token)], ["Format", said(message.payload_format)],
  ["Payload", bytes(message.payload_bytes)],
]), ...payload(message.payload) ?? []]
