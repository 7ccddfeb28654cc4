/* The sections that show all entries of a kind. Each builds itself once, and returns the function that requests its data. */

import { get, post, query } from "./daemon.js"
import { actions, announce, ask, attempt, button, card, cause, el, empty, field, fill, form, name, pieces, pill, properties,
  stack, state, stateOf, table, way, wrongs } from "./elements.js"
import { chart, leftOut, loadHistory, seriesOf, together } from "./history.js"
import { about, endpointOf, highest, model, ratesOf, total } from "./live.js"
import { live, page, redraw, refresh } from "./page.js"
import { bytes, clock, count, moment, plural, rate, said, span, words } from "./text.js"

const ROUTES = 20
const ENDS = 8 // more endpoints than that are a table
export const TYPES = ["publish", "notification", "request", "response"]

const rates = series => ["accepted", "delivered", "failed"].map(label =>
  ({ label, unit: rate, places: series(`${label}_per_s`) }))

// ---------------------------------------------------------------- overview

export function overview(root) {
  const health = el("div"), hour = card(), ends = el("div"), log = el("div"), rest = el("div", { class: "columns" })
  const tile = ([label, text]) => el("div", { class: "tile" }, el("span", { class: "label" }, label),
    live(text, { class: "value" }))
  const tiles = [
    ["Accepted", () => rate(total("accepted_per_s"))], ["Delivered", () => rate(total("delivered_per_s"))],
    ["Failed", () => rate(total("failed_per_s"))], ["Queued", () => count(total("queued"))],
    ["Oldest waits", () => span(highest("oldest_age_s"))], ["Dead letters", () => count(model.about?.journal?.dead_letters)],
  ]
  root.append(health, el("div", { class: "tiles" }, tiles.map(tile)), hour,
    el("div", { class: "columns" }, card("Endpoints", ends), card("Since this page was opened", log)), rest)
  page.on.about = () => {
    if (!model.about) return
    redraw(health, healthOf(model.about))
    const { pair, journal } = model.about
    redraw(rest, card("Streamer", streamerOf(model.about)), card("Journal", journalOf(journal)),
      pair ? card("Pair", pairOf(pair)) : null)
  }
  page.on.happened = () => redraw(log, happenings())
  page.on.about()
  page.on.happened()
  page.every_s = 15
  return async (signal, isAnew) => {
    const { endpoints } = await get("/endpoints", signal)
    const first = endpoints.toSorted(brokenFirst).slice(0, ENDS)
    redraw(ends, [table("Endpoints", [
      { head: "Name", cell: row => el("a", { href: "#endpoints", "data-keep": `end ${row.name}` }, name(row.name)) },
      { head: "Transport", cell: row => name(row.transport) },
      { head: "State", cell: row => stateOf(row, model.about?.pair) },
      { head: "Received", num: true, cell: row => live(() => rate(endpointOf(row.name).received_per_s)) },
    ], first, "The configuration has no endpoint."),
    endpoints.length > ENDS && el("p", {}, el("a", { href: "#endpoints", "data-keep": "all ends" },
      `All ${plural(endpoints.length, "endpoint")}`))].filter(Boolean))
    if (!hour.firstChild || isAnew) {
      await loadHistory(signal)
      redraw(hour, chart("Messages per second, all routes", rates(kind => () => together(kind))))
    } else await about()
  }
}

function healthOf({ ready, reasons, notes = [], pair }) {
  const isStandby = pair && pair.role !== "active", who = isStandby ? "it" : "the other one of the pair"
  const all = [...ready && pair?.problem ? [`${who} could not take over: ${pair.problem}`] : [], ...notes]
  const list = texts => el("ul", {}, texts.map(each => el("li", {}, cause(each))))
  return el("div", { class: `health ${ready ? all.length ? "warn" : "good" : "bad"}` },
    el("strong", {}, ready ? isStandby ? "On standby" : "Ready" : "Not ready"),
    reasons.length ? list(reasons) : null,
    reasons.length && all.length ? "Beside that:" : null,
    all.length ? list(all) : reasons.length ? null
      : isStandby ? "It has a copy of everything that waits at the active one."
        : "Every endpoint is connected, and there are no problems.")
}

const pairOf = pair => properties([
  ["Role", `${words(pair.role)}, epoch ${count(pair.epoch)}`],
  ["Since", el("span", {}, `${moment(pair.since)} UTC: `, cause(pair.why))],
  ["Protected", el("span", {}, pair.protected ? pill("good", "yes") : pill("warn", "no"), " ",
    pair.problem ? cause(pair.problem) : "")],
  ["Link", el("span", {}, state(pair.link.up ? "up" : "down"), " ", pair.link.problem ? cause(pair.link.problem) : "")],
  ["Other one", pair.other_version ? name(`version ${pair.other_version}`) : "not connected"],
  ["Configurations", pair.alike ? "alike" : pill("bad", "differ: neither takes over for the other")],
  ["On the way to it", bytes(pair.waiting_bytes)],
])

const streamerOf = about => properties([
  ["Authority", name(about.authority)],
  ["Version", `${said(about.version)}, ${said(about.form)}`],
  ["Started", `${moment(about.started)} UTC`],
  ["Running for", live(() => span((Date.now() - Date.parse(about.started)) / 1000))],
  ["Configuration", el("code", {}, said(about.config_fingerprint))],
  ["Traces", about.traces ? Object.entries(about.traces).map(([key, value]) => el("div", {}, `${words(key)}: `,
    typeof value === "number" ? count(value) : name(value))) : "off"],
])

const journalOf = journal => !journal
  ? empty("There is no journal: undelivered messages are lost if the process ends, and dead letters are not kept.")
  : properties([
    ["State", el("span", {}, state(journal.state), " ", journal.problem ? name(journal.problem) : "")],
    ["File", name(journal.path)],
    ["Size", el("span", {}, el("progress",
      { max: journal.max_bytes, value: journal.bytes, "aria-label": "Share of its bound" }),
      ` ${bytes(journal.bytes)} of ${bytes(journal.max_bytes)}`)],
    ["Dead letters", el("a", { href: "#dead-letters", "data-keep": "letters" }, count(journal.dead_letters))],
  ])

const happenings = () => model.happened.length
  ? el("ul", { class: "log", tabindex: 0, "data-keep": "log" }, model.happened.map(({ when, kind, text }) => el("li", {},
    el("time", { datetime: when }, clock(when)), el("span", { class: `dot ${kind}` }),
    el("span", {}, text.map(part => part.cloneNode?.(true) ?? part)))))
  : empty("Nothing yet. Changes of state, dead letters and reloads are listed here as they happen.")

// ---------------------------------------------------------------- endpoints

/** What was sent or received: on the wire, if that is known, and of payload. */
const amounts = ({ wire_bytes, payload_bytes }, way) => {
  const wire = wire_bytes ? `${bytes(wire_bytes[way])} on the wire, ` : ""
  return payload_bytes ? `${wire}${bytes(payload_bytes[way])} of payload` : undefined
}

/** 0 for an endpoint that is down, up to 3 for one that is up without problems. */
const brokenness = ({ state: its, problems }) =>
  ["down", "failed"].includes(its) ? 0 : its !== "up" ? 1 : problems?.length ? 2 : 3
const brokenFirst = (a, b) => brokenness(a) - brokenness(b) || a.name.localeCompare(b.name)

export function endpoints(root) {
  page.every_s = 10
  let wanted = page.params.get("name") ?? "", isBroken = false, found = []
  const search = field("Name or authority contains", "name", { type: "search", value: wanted })
  const which = field("State", "state", { choices: [["", "any"], ["broken", "not up, or with problems"]] })
  const filter = el("div", { class: "fields" }, search, which), box = el("div", { class: "section" })
  search.oninput = event => { wanted = event.target.value; draw() }
  which.onchange = event => { isBroken = event.target.value === "broken"; draw() }
  root.append(filter, box)
  const reasons = counts => {
    const found = Object.entries(counts ?? {}).filter(([, n]) => n)
    return found.length ? found.map(([why, n]) => el("div", {}, `${words(why)}: ${count(n)}`)) : "0"
  }
  const errorOf = ({ reason, text, address, when }) => [
    el("div", {}, `${words(reason)}, ${moment(when)} UTC`), el("div", {}, cause(address ? `${address}: ${text}` : text)),
  ]
  const cardOf = each => card([name(each.name), " ", stateOf(each, model.about?.pair)],
    each.problems?.length ? el("ul", { class: "wrong" }, each.problems.map(text => el("li", {}, cause(text)))) : null,
    properties([
      ["Transport", name(each.transport)],
      ["Connects to", each.addresses?.length ? each.addresses.map(address => el("div", {}, name(address))) : undefined],
      ["Connected to", each.connected_to?.length ? each.connected_to.map(end => el("div", {}, name(end))) : undefined],
      [each.state === "up" ? "Up since" : "Not up since", each.since ? `${moment(each.since)} UTC` : undefined],
      ["First error", each.first_error ? errorOf(each.first_error) : undefined],
      ["Last error", each.last_error ? errorOf(each.last_error) : undefined],
      ["Next attempt", each.next_attempt ? `${moment(each.next_attempt)} UTC` : undefined],
      ["Authorities", each.authorities.map(authority => el("div", {}, name(authority)))],
      ["Receives now", live(() => rate(endpointOf(each.name).received_per_s))],
      ["Received", `${plural(each.received_messages, "message")}, ${plural(each.received_packets, "packet")}`],
      ["Bytes received", amounts(each, "received")], ["Bytes sent", amounts(each, "sent")],
      ["In flight", live(() => count(endpointOf(each.name).in_flight ?? each.in_flight))],
      ["Backlog", live(() => count(endpointOf(each.name).backlog ?? each.backlog))],
      ["Reconnects", each.reconnects === undefined ? undefined : count(each.reconnects)],
      ["Malformed", reasons(each.malformed)], ["Unwanted", reasons(each.unwanted)],
    ]))
  const show = each => ask({ title: "Endpoint", cancel: "Close", body: [cardOf(each)] })
  const rejected = each => [each.malformed, each.unwanted].flatMap(counts => Object.values(counts ?? {}))
    .reduce((all, n) => all + n, 0)
  const tableOf = rows => card(null, table("Endpoints", [
    { head: "Name", cell: row => name(row.name) }, { head: "Transport", cell: row => name(row.transport) },
    { head: "State", wide: "mid", cell: row => stack(state(row.state),
      ...[row.why ?? [], row.problems ?? []].flat().map(text => el("small", {}, name(text)))) },
    { head: "Receives now", num: true, cell: row => live(() => rate(endpointOf(row.name).received_per_s)) },
    { head: "In flight", num: true, cell: row => live(() => count(endpointOf(row.name).in_flight ?? row.in_flight)) },
    { head: "Backlog", num: true, cell: row => live(() => count(endpointOf(row.name).backlog ?? row.backlog)) },
    { head: "Reconnects", num: true, cell: row => count(row.reconnects) },
    { head: "Refused", num: true, cell: row => count(rejected(row)) },
    { head: "Action", cell: row => button("Show", () => show(row),
      { "data-keep": `show ${row.name}`, "aria-label": `Show ${said(row.name)}` }) },
  ], rows, "No endpoint is like that."))
  const draw = () => {
    const fitting = found.filter(each => (!isBroken || brokenness(each) < 3)
      && [each.name, ...each.authorities].some(text => text.includes(wanted)))
    filter.hidden = found.length <= ENDS
    if (!found.length) redraw(box, empty("The configuration has no endpoint. A route needs two of them."))
    else if (found.length <= ENDS) redraw(box, el("div", { class: "columns" }, found.map(cardOf)))
    else redraw(box, [el("p", { class: "hint" }, `${plural(fitting.length, "endpoint")} of ${count(found.length)}`),
      tableOf(fitting)])
  }
  return async signal => {
    found = (await get("/endpoints", signal)).endpoints.sort(brokenFirst)
    draw()
  }
}

// ---------------------------------------------------------------- routes

export function routes(root) {
  const box = el("div", { class: "section" }), more = actions(), note = el("p", { class: "hint" }), opened = new Set()
  let shown = ROUTES, wanted = page.params.get("name") ?? "", found = []
  const search = field("Name contains", "name", { type: "search", value: wanted })
  search.oninput = event => { wanted = event.target.value; draw() }
  root.append(el("div", { class: "fields" }, search), note, box, more)
  page.every_s = 10
  const draw = () => {
    const fitting = found.filter(each => each.name.includes(wanted))
    redraw(box, fitting.length ? fitting.slice(0, shown).map(each => routeCard(each, opened))
      : empty(found.length ? "No route has that in its name." : "The configuration has no route: nothing is forwarded."))
    const label = `Show ${Math.min(ROUTES, fitting.length - shown)} more of ${fitting.length}`
    redraw(more, fitting.length > shown && button(label, () => { shown += ROUTES; draw() }, { "data-keep": "more" }))
    note.textContent = leftOut() ? `Of ${plural(leftOut(), "route")} there is no history: it is kept of the first 200.` : ""
  }
  let isKnown = false
  return async (signal, isAnew) => {
    if (!isKnown || isAnew) await loadHistory(signal)
    isKnown = true
    found = (await get("/routes", signal)).routes
    draw()
  }
}

function routeCard(each, opened) {
  const now = () => ratesOf(each.name)
  const latency = figures => figures?.count ? `${span(figures.p50_s)} / ${span(figures.p99_s)}` : "–"
  const figures = [
    ["accepted", () => rate(now().accepted_per_s)], ["delivered", () => rate(now().delivered_per_s)],
    ["failed", () => rate(now().failed_per_s)], ["queued", () => count(now().queued ?? each.queued)],
    ["oldest waits", () => span(now().oldest_age_s ?? each.oldest_age_s ?? 0)],
      ["unconfirmed", () => count(each.unconfirmed)],
    ["paused", () => count(each.paused_messages)], ["retries", () => count(each.retries)],
    ["in daemon, p50 / p99", () => latency(each.latency?.in_daemon)],
    ["end to end, p50 / p99", () => latency(each.latency?.end_to_end)],
    ["received", () => amounts(each, "received") ?? "–"], ["sent", () => amounts(each, "sent") ?? "–"],
  ]
  const ontoggle = event => opened[event.target.open ? "add" : "delete"](each.name)
  const details = el("details", { open: opened.has(each.name), ontoggle },
    el("summary", { "data-keep": `codes ${each.name}` }, "Outcomes"),
    el("div", { class: "columns" },
      table("Outcomes", [{ head: "Outcome", cell: ([outcome]) => words(outcome) },
        { head: "Messages", num: true, cell: ([, n]) => count(n) }], Object.entries(each.outcomes),
          "No message has ended here yet."),
      table("Failures", [{ head: "Failure", cell: row => `${words(row.outcome)}: ${words(row.code)}` },
        { head: "Messages", num: true, cell: row => count(row.count) }], each.codes ?? [], "Nothing has failed here.")))
  const links = [["flows", "Flows that wait"], ["dead-letters", "Dead letters"], ["tap", "Tap"]]
  return card([name(each.name), el("span", { class: "sub" }, way(each))],
    el("dl", { class: "numbers" }, figures.map(([label, text]) => el("div", {}, el("dt", {}, label),
      el("dd", {}, live(text))))),
    el("div", { class: "columns" }, chart("Messages per second", rates(kind => () => seriesOf(each.name, kind))),
      chart("Queued messages", [{ label: "queued", unit: count, places: () => seriesOf(each.name, "queued") }])),
    details, el("p", { class: "links" }, links.map(([section, text]) =>
      el("a", { href: `#${section}${query({ route: each.name })}`, "data-keep": `${section} ${each.name}` }, text))))
}

// ---------------------------------------------------------------- pause and resume

export function pause(root) {
  const box = el("div"), wrong = wrongs()
  const entry = form([
    field("Topic or source", "topic",
      { required: true, placeholder: "//veh1/A8000/2/8A50", hint: "FFFFFFFF, FF, FFFF, * match any" }),
    field("Sink", "sink", { hint: "empty: whatever the sink is" }),
    field("For", "for_s", { choices: [["", "until you resume it"], ["900", "15 minutes"], ["3600", "1 hour"],
      ["7200", "2 hours"], ["28800", "8 hours"], ["86400", "1 day"]] }),
  ], "Pause", async rule => {
    const { changed } = await post("/pause", rule.for_s ? { ...rule, for_s: Number(rule.for_s) } : rule)
    announce(changed ? `Paused ${said(rule.topic)}.` : "That was paused already.")
    entry.reset()
    await refresh()
  })
  fill(entry, page.params)
  root.append(card("Pause flows", entry), card("Paused now", wrong, box))
  page.every_s = 10
  page.on.paused = () => refresh()
  const resume = ({ topic, sink }) => {
    const control = button("Resume", () => attempt(wrong, control, async () => {
      await post("/resume", sink ? { topic, sink } : { topic })
      announce(`Resumed ${said(topic)}.`)
      await refresh()
    }), { "data-keep": `resume ${topic} ${sink}`, "aria-label": `Resume ${said(topic)}` })
    return control
  }
  return async signal => {
    const { paused } = await get("/paused", signal)
    redraw(box, table("Paused now", [
      { head: "Topic or source", wide: "wide", cell: row => name(row.topic) },
        { head: "Sink", cell: row => name(row.sink, "any") },
      { head: "Flows", num: true, cell: row => count(row.flows) },
        { head: "Messages", num: true, cell: row => count(row.messages) },
      { head: "Ends", cell: row => row.left_s === null ? "when you resume it" : `in ${span(row.left_s)}` },
      { head: "Action", cell: resume },
    ], paused, "Nothing is paused: every flow goes on as fast as it can."))
  }
}

// ---------------------------------------------------------------- explain

export async function explain(root) {
  const answer = el("div", { role: "region", "aria-live": "polite", "aria-label": "Answer" })
  const { endpoints } = await get("/endpoints", page.abort.signal)
  const places = [["", "where its source lives"], ...endpoints.map(each => [each.name, said(each.name)])]
  const entry = form([
    field("Type", "type", { choices: TYPES }),
    field("Source", "source", { required: true, placeholder: "//veh1/A8000/2/8A50", hint: "of a Publish: its topic" }),
    field("Sink", "sink", { hint: "not for a Publish" }), field("Arrives at", "from", { choices: places }),
    field("Identity", "identity", { hint: "who sends it, as the network proves it" }),
    field("Permission level", "permission_level", { inputmode: "numeric", hint: "what a Request claims" }),
  ], "Explain", async given => {
    answer.replaceChildren()
    history.replaceState(null, "", `#explain${query(given)}`)
    answer.replaceChildren(verdict(await get(`/explain${query(given)}`, page.abort.signal)))
  })
  fill(entry, page.params)
  root.append(card(null, entry), answer)
  if (page.params.get("source")) entry.requestSubmit()
}

const verdict = ({ from, goes, why, hops, failure }) => card(null,
  el("p", { class: `verdict ${goes ? "good" : "bad"}` }, el("strong", {}, goes ? "It goes on" : "It goes nowhere"),
    ", arriving at ", name(from)),
  failure && el("p", {}, pill("bad", words(failure.outcome)), " ", el("code", {}, said(failure.code)), " ",
    name(failure.text)),
  hops.length ? table("Hops", [
    { head: "Route", wide: "mid", cell: hop => name(hop.route) },
    { head: "To endpoint", wide: "mid", cell: hop => stack(name(hop.endpoint),
      ...hop.link?.why ? [state(hop.link.state), el("small", {}, name(hop.link.why))] : []) },
    { head: "With sink", cell: hop => name(hop.sink, "none") },
    { head: "At most", cell: hop => hop.period_ms ? `one in ${count(hop.period_ms)} ms` : "–" },
    { head: "Limits", cell: hop => hop.limits?.length ? hop.limits.map(text => el("div", {}, name(text))) : "–" },
    { head: "Paused by", cell: hop => name(hop.paused_by, "nothing") },
  ], hops) : null,
  el("h3", {}, "Why"),
  why.length ? el("ol", { class: "why" },
    why.map(text => el("li", {}, name(text)))) : empty("No rule has anything to say about it."))

// ---------------------------------------------------------------- configuration

const LOSSES = ["denied", "unrouted"]

/** What another configuration would change. */
function preview({ flows, changes, settings, restart, rebuilt }) {
  const list = (title, texts) => texts.length && [el("h3", {}, title), el("ul", {}, texts.map(each => el("li", {}, each)))]
  const change = ({ kind, words: what, text, flows: some, messages_per_day, examples }) => [
    pill(LOSSES.includes(kind) ? "bad" : "warn", words(kind)), " ", plural(some, "flow"),
    messages_per_day ? `, ${count(messages_per_day)} messages a day,` : "", ` ${what}: `, name(text),
    el("ul", {}, examples.map(({ type, source, sink, ingress, priority }) => el("li", {}, `${words(type)} `, name(source),
      sink && [" → ", name(sink)], " from ", name(ingress), `, ${said(priority)}`))),
  ]
  return [
    el("p", { class: "hint" }, `Judged for ${plural(flows, "flow")} that the streamer knows.`),
    list("Flows", changes.map(change)),
    list("Settings", settings.map(({ text }) => name(text))),
    list("It will be refused", restart.map(text => name(text))),
    list("Endpoints that connect anew", rebuilt.map(text => name(text))),
  ].filter(Boolean)
}

export function configuration(root) {
  const box = el("div"), wrong = wrongs()
  const use = async saying => {
    announce("The file is being read. Endpoints that change may take a while.")
    await post("/reload", {})
    announce(`The file was read again. ${saying}`)
    await refresh()
  }
  const again = button("Read the file again", () => attempt(wrong, again, async () => {
    const changes = await post("/preview", {})
    if (!changes.changes.length && !changes.settings.length && !changes.restart.length) return use("It says the same.")
    const isDanger = changes.changes.some(({ kind }) => LOSSES.includes(kind))
    await ask({ title: "What the file would change", body: preview(changes), label: "Use it", isDanger,
      run: () => use("What it says is in use.") })
  }), { class: "primary" })
  root.append(actions(again, el("span", { class: "hint" },
    "If something is wrong with the file, nothing changes, and it is said here.")),
    wrong, box)
  page.on.config = () => refresh()
  return async signal => {
    const { fingerprint, config } = await get("/config", signal)
    redraw(box, card(null, el("p", {}, "Fingerprint ", el("code", {}, said(fingerprint))),
      el("pre", { tabindex: 0, role: "region", "aria-label": "Running configuration", "data-keep": "config" },
        pieces(JSON.stringify(config, null, 2), "\n"))))
  }
}

