/* The visible section: the parts of it that are kept up to date, and how its data are requested again. */

import { el, show } from "./elements.js"

/** live: [element, text()]; charts: draw(); on: listeners by event; refresh(signal, isAnew); every_s: how often. */
export let page = { live: [], charts: [], on: {}, abort: new AbortController(), params: new URLSearchParams() }

export function open(section, params) {
  page.abort.abort()
  page.leave?.()
  page = { section, params, live: [], charts: [], on: {}, abort: new AbortController(), refreshed: Date.now(),
    root: el("div", { class: `section ${section}`, "aria-busy": "true" }),
    wrong: el("div", { class: "wrong", role: "alert" }) }
  return page
}

/** A text that `tick` keeps up to date. */
export function live(text, props = {}) {
  const node = el("span", props, text())
  page.live.push([node, text])
  return node
}

export function tick() {
  page.live = page.live.filter(([node]) => node.isConnected)
  for (const [node, text] of page.live) {
    const now = text()
    if (node.textContent !== now) node.textContent = now
  }
}

export function redrawCharts() {
  page.charts = page.charts.filter(([node]) => node.isConnected)
  for (const [, draw] of page.charts) draw()
}

/** Replace the content of a box, and keep the focus: on the element with the same `data-keep`, else on the heading. */
export function redraw(box, ...nodes) {
  const held = box.contains(document.activeElement) ? document.activeElement : null
  box.replaceChildren(...nodes.flat().filter(Boolean))
  if (!held) return
  const again = held.dataset.keep && box.querySelector(`[data-keep="${CSS.escape(held.dataset.keep)}"]`)
  const target = again && !again.disabled ? again : document.querySelector("main h1")
  target.focus({ preventScroll: true })
}

/** Request the data of the section. `isAnew`: all of it may have changed. Of several, the last one says what is wrong. */
export async function refresh(isAnew = false) {
  const mine = page, number = page.asked = (page.asked ?? 0) + 1
  if (!mine.refresh || mine.abort.signal.aborted) return
  mine.refreshed = Date.now()
  try {
    await mine.refresh(mine.abort.signal, isAnew)
    if (number === mine.asked) mine.wrong.replaceChildren()
  } catch (error) {
    if (!error.isLost && number === mine.asked) show(mine.wrong, error)
  }
  mine.root.setAttribute("aria-busy", "false")
}
