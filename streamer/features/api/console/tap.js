/* The tap: messages with their outcomes, live. The page keeps only the latest, and counts those that were left out. */

import { events, get, permitted, query, sleep } from "./daemon.js"
import { actions, anyOf, beginning, button, card, el, empty, field, fill, flow, lines, name, payloadChoice, pill, show,
  stack, table, values, way, wrongs } from "./elements.js"
import { page } from "./page.js"
import { TYPES } from "./sections.js"
import { bytes, clock, count, plural, said, span, words } from "./text.js"

const ROWS = 200
const DRAW_MS = 250
const OUTCOMES = ["sent", "delivered", "expired", "rejected", "dead_lettered", "duplicate", "local", "unwanted", "unheard",
  "sampled_out", "unconfirmed", "superseded"]
const KINDS = { delivered: "good", expired: "bad", rejected: "bad", dead_lettered: "bad" }

const COLUMNS = [
  { head: "Time", cell: row => el("time", { datetime: row.t },
    clock(row.t) + (String(row.t).match(/\.\d{1,3}/)?.[0] ?? "")) },
  { head: "Outcome", cell: row => stack(pill(KINDS[row.outcome] ?? "plain", words(row.outcome)),
    row.code && row.code !== "OK" && el("small", {}, words(row.code), " ", name(row.text, ""))) },
  { head: "Message", wide: "wide", cell: row => stack(flow(row),
    el("small", {}, [row.type, row.priority].filter(Boolean).map(said).join(" "))) },
  { head: "Route", wide: "mid", cell: row => stack(name(row.route), el("small", {}, way(row))) },
  { head: "In daemon", num: true, cell: row => span(row.in_daemon_s) },
    { head: "Size", num: true, cell: row => bytes(row.bytes) },
  { head: "Payload", cell: beginning },
]

export async function tap(root) {
  const { endpoints } = await get("/endpoints", page.abort.signal)
  const note = el("p", { class: "hint", role: "status" }), wrong = wrongs(), rows = el("tbody", { role: "rowgroup" })
  const none = empty("No tap is running. Press Start to see messages with their outcomes here.")
  const box = el("div", { hidden: true },
    table("Tapped messages, the newest first", COLUMNS, [], undefined, rows))
  let running = null, isHeld = false, waiting = [], seen = 0, leftOut = 0, unshown = 0

  const toggle = el("button", { class: "primary" }, "Start")
  const hold = button("Pause", () => { isHeld = !isHeld; hold.textContent = isHeld ? "Continue" : "Pause"; say() },
    { disabled: true })
  const clear = button("Clear", () => { rows.replaceChildren(); waiting = []; seen = leftOut = unshown = 0; say() })
  const fields = [
    field("Route", "route"), field("Endpoint", "endpoint",
      { choices: [["", "any"], ...endpoints.map(({ name }) => [name, said(name)])] }),
    field("Type", "type", { choices: anyOf(TYPES) }), field("Outcome", "outcome", { choices: anyOf(OUTCOMES) }),
    field("Source", "source", { placeholder: "//veh1/FFFFFFFF/FF/FFFF" }), field("Sink", "sink"),
    payloadChoice(),
    field("At most per second", "rate", { type: "number", min: "1", max: "1000", value: "100" }),
  ]
  const onsubmit = event => { event.preventDefault(); if (running) stop(); else start() }
  const entry = el("form", { onsubmit }, el("div", { class: "fields" }, fields), actions(toggle, hold, clear), wrong)
  fill(entry, page.params)
  root.append(card(null, entry), card(null, note, none, box))

  function say() {
    const shown = rows.children.length
    note.textContent = [
      running && (running.isConnected ? "Listening." : "Connecting."),
      seen && `${plural(seen, "message")}, the last ${count(shown)} are shown.`,
      leftOut && `${plural(leftOut, "message")} did not fit and were left out.`,
      unshown && `${plural(unshown, "message")} came too fast to be shown.`,
      isHeld && `Paused; ${plural(waiting.length, "message")} to come.`,
    ].filter(Boolean).join(" ")
    none.hidden = Boolean(running || shown)
    box.hidden = !shown
  }

  function draw() {
    if (!isHeld && waiting.length) {
      rows.prepend(...lines(COLUMNS, waiting.splice(0).reverse()))
      while (rows.children.length > ROWS) rows.lastChild.remove()
    }
    say()
  }

  function take({ event, data }) {
    if (event === "left_out") leftOut += data.messages ?? 0
    if (event !== "message") return
    seen++
    waiting.push(data)
    if (waiting.length > ROWS) { waiting.shift(); unshown++ }
  }

  function stop() {
    running?.abort()
    running = null
    isHeld = false
    hold.textContent = "Pause"
    toggle.textContent = "Start"
    hold.disabled = true
    draw()
  }

  /** Receive messages until `stop`, also after a restart of the daemon. */
  async function start() {
    const mine = running = new AbortController()
    toggle.textContent = "Stop"
    hold.disabled = false
    wrong.replaceChildren()
    say()
    const path = `/tap${query(values(entry))}`, timer = setInterval(draw, DRAW_MS)
    for (let failures = 0; !mine.signal.aborted;) {
      const abort = new AbortController()
      try {
        const answer = await permitted(path, { signal: AbortSignal.any([mine.signal, abort.signal]) })
        failures = 0
        mine.isConnected = true
        wrong.replaceChildren()
        for await (const each of events(answer, abort)) take(each)
      } catch (error) {
        const isBrief = error.isLost || error.status === 503 || error instanceof TypeError // of a broken stream
        if (running === mine) show(wrong, error)
        if (!isBrief && !abort.signal.aborted && running === mine) stop()
      }
      mine.isConnected = false
      await sleep(Math.min(15, 2 ** failures++ / 2) * 1000, mine.signal)
    }
    clearInterval(timer)
  }

  page.leave = stop
}
