/* The known state of the daemon, and its updates: by events as long as the page is visible, or by polling if the daemon has
 * no room for another stream. */

import { finding } from "./audit.js"
import { events, get, request, sleep } from "./daemon.js"
import { announce, button, name } from "./elements.js"
import { roll } from "./history.js"
import { page, refresh, tick } from "./page.js"
import { clock, plural, said, span, words } from "./text.js"

export const POLL_S = 10
const STREAM_AGAIN_S = 60
const FIRST_S = 8 // the daemon says something every second
const HAPPENED = 40
const LETTERS = 8
const LETTERS_S = 5

export const model = { about: null, routes: {}, endpoints: {}, isRated: false, happened: [], newLetters: 0 }
export const link = { state: "connecting", since: null }

const NOTHING = { accepted_per_s: 0, delivered_per_s: 0, failed_per_s: 0, queued: 0, oldest_age_s: 0, received_per_s: 0 }
export const ratesOf = route => model.routes[route] ?? (model.isRated ? NOTHING : {})
export const endpointOf = endpoint => model.endpoints[endpoint] ?? (model.isRated ? NOTHING : {})
const known = (key, combine) => model.isRated
  ? Object.values(model.routes).reduce((all, each) => combine(all, each[key] ?? 0), 0) : undefined
export const total = key => known(key, (a, b) => a + b)
export const highest = key => known(key, Math.max)

const states = new Map()
let draw = () => {}
let totals = null, letters = null, lettersAt = 0

/** Follow the daemon from now on. `redraw` shows the state of the connection, and the parts that are always visible. */
export async function follow(redraw) {
  draw = redraw
  document.addEventListener("visibilitychange", () => { if (document.hidden) link.abort?.abort() })
  for (let failures = 0; ;) {
    await seen()
    const abort = link.abort = new AbortController()
    try {
      const stream = await begin(abort)
      if (stream) for await (const each of stream) { failures = 0; happen(each) }
      else { failures = 0; await poll(abort.signal) }
      await sleep(500, abort.signal)
    } catch (error) {
      if (document.hidden) continue
      const wait_s = Math.min(15, 2 ** failures++) * (0.75 + Math.random() / 2)
      if (failures > 1 || error.isLost || error.status) lost(error, wait_s)
      link.retry = new AbortController()
      await sleep(wait_s * 1000, AbortSignal.any([link.retry.signal, abort.signal]))
    }
  }
}

/** The daemon's events; null if it has no room for one more stream, or if something on the way holds them back. */
async function begin(abort) {
  const early = new AbortController(), timer = setTimeout(() => early.abort(), FIRST_S * 1000)
  const signal = AbortSignal.any([abort.signal, early.signal])
  try {
    const answer = await request("/events", { signal, isPermitted: true })
    const all = events(answer, abort), first = await all.next()
    if (first.done) throw Object.assign(new Error("The streamer ended the stream."), { isLost: true })
    connected("live")
    return (async function* () { yield first.value; yield* all })()
  } catch (error) {
    const isHeldBack = early.signal.aborted && !abort.signal.aborted
    if (error.status !== 503 && !isHeldBack) throw error
    connected("polling", isHeldBack)
    return null
  } finally { clearTimeout(timer) }
}

async function seen() {
  while (document.hidden) await new Promise(go => document.addEventListener("visibilitychange", go, { once: true }))
}

async function poll(signal) {
  for (let waited_s = 0; waited_s < STREAM_AGAIN_S && !signal.aborted; waited_s += POLL_S) {
    await readTotals(signal)
    if (waited_s) { await about(); await refresh() }
    await sleep(POLL_S * 1000, signal)
  }
}

function connected(state, isHeldBack = false) {
  const wasLost = link.state === "lost"
  Object.assign(link, { state, isHeldBack, since: null })
  document.getElementById("banner").hidden = true
  document.body.classList.remove("stale")
  if (wasLost) { announce("The streamer answers again."); happened("good", "The streamer answers again") }
  draw()
  about().then(() => refresh(true))
}

function lost(error, wait_s) {
  if (link.state !== "lost") {
    Object.assign(link, { state: "lost", since: new Date().toISOString() })
    states.clear()
    happened("bad", error.message)
  }
  document.body.classList.add("stale")
  const text = `${said(error.message)} What is shown is from before ${clock(link.since)} UTC.`
  const banner = document.getElementById("banner")
  if (banner.hidden || banner.firstChild.textContent !== text) {
    banner.replaceChildren(text, button("Try now", () => link.retry.abort()))
    banner.hidden = false
  }
  banner.title = `next attempt in ${span(wait_s)}`
  draw()
}

/** Add an event to the list of those since the page was opened. Dead letters have a bound of their own there. */
function happened(kind, ...text) { add({ kind, text }) }

function add(entry) {
  const all = [{ ...entry, when: new Date().toISOString() }, ...model.happened]
  const isKept = new Set([...all.filter(each => !each.letters).slice(0, HAPPENED),
    ...all.filter(each => each.letters).slice(0, LETTERS)])
  model.happened = all.filter(each => isKept.has(each))
  page.on.happened?.()
}

/** Add a dead letter: those with one reason and route are one event with their number. */
function addLetter(reason, route) {
  const key = `${reason} ${route}`, before = model.happened.find(each => each.key === key)
  const letters = (before?.letters ?? 0) + 1
  model.happened = model.happened.filter(each => each !== before)
  const what = letters > 1 ? plural(letters, "dead letter") : "Dead letter"
  add({ kind: "warn", key, letters, text: [`${what}, ${words(reason)}, on route `, name(route, "none")] })
}

function happen({ event, data }) {
  if (event === "rates") takeRates(data)
  if (event === "state") takeState(data)
  if (event === "dead_letter") takeLetter(data)
  if (event === "config") { announce("The configuration was read again."); happened("plain",
    "The configuration was read again"); about() }
  if (event === "live_audit") happened(...finding(data))
  if (event === "left_out") { about(); refresh() }
  page.on[event]?.(data)
}

function takeState({ what, name: whose, state, problems = [] }) {
  const key = `${what} ${whose ?? ""}`, text = [state, ...problems].join(", "), before = states.get(key)
  states.set(key, text)
  if (before === undefined || before === text) return
  const kind = /^(up|ok|true|ready)/.test(text) ? "good" : /^(down|failed|false|not|unready)/.test(text) ? "bad" : "warn"
  happened(kind, `${words(what)} `, whose ? name(whose) : "", ` ${said(text)}`)
  announce(`${words(what)} ${said(whose ?? "")} ${said(text)}`)
  about()
  if (what === "endpoint") refresh()
}

function takeLetter({ left_out, reason, route }) {
  model.newLetters += left_out ?? 1
  if (!left_out) addLetter(reason, route)
}

function takeRates({ t, routes = {}, endpoints = {}, dead_letters }) {
  Object.assign(model, { routes, endpoints, isRated: true })
  roll(routes, Date.parse(t) || Date.now())
  tick()
  if (dead_letters !== letters && Date.now() - lettersAt > LETTERS_S * 1000) {
    if (letters !== null) about()
    letters = dead_letters
    lettersAt = Date.now()
  }
}

/** Without a stream, the rates are the differences of two polls. */
async function readTotals(signal) {
  const { routes } = await get("/routes", signal)
  const before = totals
  totals = { at: Date.now(), routes: Object.fromEntries(routes.map(each => [each.name, each])) }
  if (!before) return
  const failed = ({ outcomes: o }) => (o.expired ?? 0) + (o.rejected ?? 0) + (o.dead_lettered ?? 0)
  const per_s = (now, old) => Math.max(0, now - old) / ((totals.at - before.at) / 1000)
  takeRates({ dead_letters: letters, routes: Object.fromEntries(routes.map(each => {
    const old = before.routes[each.name] ?? each
    return [each.name, {
      accepted_per_s: per_s(each.accepted, old.accepted), failed_per_s: per_s(failed(each), failed(old)),
      delivered_per_s: per_s(each.outcomes.delivered ?? 0, old.outcomes.delivered ?? 0),
      queued: each.queued, oldest_age_s: each.oldest_age_s,
    }]
  })) })
}

export async function about() {
  try {
    const found = await get("")
    if (model.about && model.about.started !== found.started) happened("warn", "The streamer was started anew")
    model.about = found
    page.on.about?.()
    draw()
  } catch { /* the stream reports the failure */ }
}
