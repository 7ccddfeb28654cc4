/* The section of the live audit: what was lost between streamers, as the streamer that compares has found. */

import { get } from "./daemon.js"
import { card, el, empty, name, pill, properties, table } from "./elements.js"
import { page, redraw, refresh } from "./page.js"
import { count, moment, plural, words } from "./text.js"

const KINDS = { equal: "good", lost: "bad", twice: "warn", unknown: "warn" }
const OFF = "This streamer compares nothing: set live_audit in its configuration, without to."

/** A finding in a few words, for the list of what has happened. */
export const finding = ({ verdict, messages, streamer, class: flow, id }) => [KINDS[verdict] ?? "plain",
  `Live audit: ${plural(messages, "message")} ${words(verdict)}, `, name(flow), " from or to ", name(streamer),
  ...id ? [", ", name(id)] : []]

export function audit(root) {
  const sums = el("div"), box = el("div")
  root.append(card("Messages compared", sums), card("Findings", box))
  page.every_s = 10
  page.on.live_audit = () => refresh()
  return async signal => {
    const found = await get("/live-audit", signal)
    redraw(sums, found.compares ? properties([
      ...Object.entries(found.messages).map(([verdict, number]) => [words(verdict), count(number)]),
      ["Open", plural(found.open_minutes, "minute")], ["Streamers", count(found.streamers)],
    ]) : empty(OFF))
    redraw(box, table("Findings", [
      { head: "Minute", cell: row => `${moment(row.minute)} UTC` },
      { head: "Verdict", cell: row => pill(KINDS[row.verdict] ?? "plain", words(row.verdict)) },
      { head: "Was", cell: row => words(row.was) || "–" },
      { head: "Messages", num: true, cell: row => count(row.messages) },
      { head: "Streamer", cell: row => name(row.streamer) },
      { head: "Class", wide: "wide", cell: row => name(row.class) },
      { head: "Id", wide: "mid", cell: row => name(row.id) },
    ], found.findings, "Nothing lost, and nothing twice."))
  }
}
