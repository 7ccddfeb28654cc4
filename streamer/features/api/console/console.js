/* The console: one page that shows data of the administration API and follows its events.
 *
 * It stores only the token (in memory; in the tab's storage if the user wants that) and the appearance. A page that is not
 * visible has no stream and sends no requests.
 */

import { audit } from "./audit.js"
import { askToken, drawToken } from "./daemon.js"
import { el, name, show } from "./elements.js"
import { deadLetters, flows, lastValues, subscriptions } from "./lists.js"
import { follow, link, model, POLL_S } from "./live.js"
import { open as openPage, page, refresh, tick } from "./page.js"
import { configuration, endpoints, explain, overview, pause, routes } from "./sections.js"
import { tap } from "./tap.js"
import { count, plural, said, words } from "./text.js"

const SECTIONS = {
  overview: ["Overview", "Is it well, and how much goes through it?", overview],
  endpoints: ["Endpoints", "The networks that the streamer is connected to.", endpoints],
  routes: ["Routes", "How much went over each route in the last hour, and how much waits.", routes],
  flows: ["Flows", "Messages with the same source and sink on the same route. Order is kept inside a flow.", flows],
  "dead-letters": ["Dead letters", "Messages that could not be delivered. A redrive sends them again.", deadLetters],
  pause: ["Pause", "Paused flows wait in order, under their TTL. A pause survives a restart.", pause],
  "live-audit": ["Live audit", "What was lost between streamers, or came twice.", audit],
  explain: ["Explain", "Which route a message would take, and why not the others. Nothing is sent.", explain],
  subscriptions: ["Subscriptions", "Which uEntity has subscribed to which topic.", subscriptions],
  "last-values": ["Last values", "The last message of each topic that went through, as uTwin knows it.", lastValues],
  configuration: ["Configuration", "What the daemon uses now, with all defaults. Secrets are left out.", configuration],
  tap: ["Tap", "Messages with their outcomes, live. It delays none: those that do not fit are left out and counted.", tap],
}
const LINKS = { live: "live", polling: `every ${POLL_S} s`, lost: "trying again", connecting: "connecting" }

const byId = id => document.getElementById(id)

async function open() {
  const [wanted, given] = location.hash.slice(1).split(/\?(.*)/s)
  const section = SECTIONS[wanted] ? wanted : "overview"
  const isFirst = !page.section
  const mine = openPage(section, new URLSearchParams(given ?? ""))
  const [title, text, build] = SECTIONS[section]
  const head = el("h1", { tabindex: -1 }, title)
  byId("main").replaceChildren(head, el("p", { class: "lead" }, text), mine.wrong, mine.root)
  document.title = `${title} – uStreamer`
  menu(false)
  draw()
  if (!isFirst) { head.focus({ preventScroll: true }); scrollTo(0, 0) }
  try { mine.refresh = await build(mine.root) } catch (error) { show(mine.wrong, error) }
  if (mine === page) await refresh()
  mine.root.setAttribute("aria-busy", "false")
}

function draw() {
  const { about } = model, isLost = link.state === "lost"
  byId("authority").replaceChildren(about ? name(about.authority) : "")
  byId("health").className = `pill ${isLost || about && !about.ready ? "bad" : about ? "good" : "plain"}`
  byId("health").textContent = isLost ? "No answer" : !about ? "…" : about.ready ? "Ready"
    : `Not ready: ${plural(about.reasons.length, "reason")}`
  const pair = about?.pair
  byId("role").hidden = !pair || isLost
  byId("role").className = `pill ${pair?.problem ? "warn" : "plain"}`
  byId("role").textContent = pair ? `${words(pair.role)}${pair.protected ? "" : ", not protected"}` : ""
  byId("link").className = `link ${link.state}`
  byId("link").textContent = LINKS[link.state]
  byId("link").title = link.state !== "polling" ? "" : link.isHeldBack
    ? "Something between this page and the streamer holds back its events: the page asks now and then."
    : "There are too many streams already: the page asks now and then."
  for (const item of document.querySelectorAll("#sections a")) {
    if (item.dataset.section === page.section) item.setAttribute("aria-current", "page")
    else item.removeAttribute("aria-current")
  }
  const letters = model.about?.journal?.dead_letters
  document.querySelector("[data-section=dead-letters] .count").textContent = letters ? count(letters) : ""
}

function menu(isOpen) {
  byId("side").classList.toggle("open", isOpen)
  byId("menu").setAttribute("aria-expanded", isOpen)
}

function theme(value) {
  if (value) document.documentElement.dataset.theme = value
  else delete document.documentElement.dataset.theme
  byId("theme").value = value
}

byId("sections").append(el("ul", {}, Object.entries(SECTIONS).map(([section, [title]]) => el("li", {},
  el("a", { href: `#${section}`, "data-section": section }, title, el("span", { class: "count" }))))))
byId("menu").onclick = () => menu(byId("menu").getAttribute("aria-expanded") !== "true")
byId("token").onclick = () => askToken()
byId("theme").onchange = event => { localStorage.setItem("theme", event.target.value); theme(event.target.value) }
document.querySelector(".skip").onclick = event => { event.preventDefault(); byId("main").focus() }
addEventListener("hashchange", open)
setInterval(() => {
  if (document.hidden || link.state !== "live") return
  tick()
  const isReading = !getSelection().isCollapsed || document.querySelector("dialog[open]")
  if (page.every_s && Date.now() - page.refreshed > page.every_s * 1000 && !isReading) refresh()
}, 1000)

theme(localStorage.getItem("theme") ?? "")
drawToken()
open()
follow(draw)
