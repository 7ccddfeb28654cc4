/* The last hour of every route, and its drawing. A series has SAMPLES values, the last one of now; null: not known. */

import { get } from "./daemon.js"
import { el } from "./elements.js"
import { page, redrawCharts } from "./page.js"
import { clock } from "./text.js"

const SAMPLES = 360
const ROUTES = 200
const KINDS = ["accepted_per_s", "delivered_per_s", "failed_per_s", "queued"]
const WIDTH = 600, HEIGHT = 120

let history = null
export const leftOut = () => history?.leftOut ?? 0

const unknown = () => new Array(SAMPLES).fill(null)

export async function loadHistory(signal) {
  const { interval_s, start, routes, left_out_routes: leftOut } = await get("/history", signal)
  const step_ms = interval_s * 1000
  const now = Math.floor(Date.now() / step_ms), first = Math.round(Date.parse(start) / step_ms)
  const places = values => {
    const found = unknown()
    values.forEach((value, i) => {
      const place = SAMPLES - 1 - now + first + i
      if (found[place] === null) found[place] = value
    })
    return found
  }
  const series = new Map(routes.map(each => [each.name,
    Object.fromEntries(KINDS.map(kind => [kind, places(each[kind] ?? [])]))]))
  history = { step_ms, now, series, leftOut, sums: new Map(), samples: 0 }
}

/** Add the present rates to the series. */
export function roll(rates, at) {
  if (!history) return
  for (const [route, each] of Object.entries(rates)) {
    const sums = history.sums.get(route) ?? { accepted_per_s: 0, delivered_per_s: 0, failed_per_s: 0 }
    for (const kind of KINDS) sums[kind] = kind === "queued" ? each[kind] ?? 0 : sums[kind] + (each[kind] ?? 0)
    history.sums.set(route, sums)
  }
  history.samples++
  const now = Math.floor(at / history.step_ms), steps = Math.min(SAMPLES, now - history.now)
  if (steps <= 0) return
  for (const route of history.sums.keys()) {
    if (!history.series.has(route) && history.series.size < ROUTES) {
      history.series.set(route, Object.fromEntries(KINDS.map(kind => [kind, unknown()])))
    }
  }
  for (const [route, series] of history.series) {
    const sums = history.sums.get(route)
    for (const kind of KINDS) {
      series[kind].splice(0, steps)
      while (series[kind].length < SAMPLES - 1) series[kind].push(null)
      series[kind].push(!sums ? 0 : kind === "queued" ? sums.queued : sums[kind] / history.samples)
    }
  }
  Object.assign(history, { now, samples: 0, sums: new Map() })
  redrawCharts()
}

export const seriesOf = (route, kind) => history?.series.get(route)?.[kind] ?? unknown()

export function together(kind) {
  const all = unknown()
  for (const series of history?.series.values() ?? []) {
    series[kind].forEach((value, i) => { if (value !== null) all[i] = (all[i] ?? 0) + value })
  }
  return all
}

/** The top of a scale: 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  if (value <= 1) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= value)
}

function path(places, top, isClosed) {
  let text = "", begin = null
  const x = i => (i * WIDTH / (SAMPLES - 1)).toFixed(1), y = value => (HEIGHT - 1 - value / top * (HEIGHT - 2)).toFixed(1)
  places.forEach((value, i) => {
    if (value !== null) { text += `${begin === null ? "M" : "L"}${x(i)} ${y(value)}`; begin ??= i }
    if (begin !== null && (value === null || i === SAMPLES - 1)) {
      const end = value === null ? i - 1 : i
      text += isClosed ? `V${HEIGHT}H${x(begin)}Z` : end === begin ? "h2" : ""
      begin = null
    }
  })
  return text
}

/** An hour of one to three series, the first as an area, the others as lines. `series`: {label, unit(value), places()}. */
export function chart(title, series) {
  const svg = el("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" })
  const area = el("path", { class: "area" }), edges = ["edge", "second", "third"].map(each => el("path", { class: each }))
  const cursor = el("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" })
  const middle = HEIGHT / 2
  svg.append(el("path", { class: "grid", d: `M0 1H${WIDTH}M0 ${middle}H${WIDTH}` }), area, ...edges, cursor,
    el("path", { class: "axis", d: `M0 ${HEIGHT - 0.5}H${WIDTH}` }))
  const top = el("span", { class: "high" }), read = el("span", { class: "read" })
  let shown = []
  const draw = () => {
    shown = series.map(each => each.places())
    const high = ceiling(Math.max(0, ...shown.flat().filter(value => value !== null)))
    area.setAttribute("d", path(shown[0], high, true))
    shown.forEach((places, n) => edges[n].setAttribute("d", path(places, high, false)))
    top.textContent = series[0].unit(high)
    const sayings = series.map(({ label, unit }, n) => {
      const values = shown[n].filter(value => value !== null)
      if (!values.length) return `${label}: nothing yet`
      return `${label} ${unit(values.at(-1))} now, ${unit(Math.max(...values))} at most`
    })
    svg.setAttribute("aria-label", `${title}, the last hour: ${sayings.join("; ")}`)
  }
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect()
    const i = Math.max(0, Math.min(SAMPLES - 1, Math.round((event.clientX - box.left) / box.width * (SAMPLES - 1))))
    const x = i * WIDTH / (SAMPLES - 1)
    for (const [key, value] of Object.entries({ x1: x, x2: x, visibility: "visible" })) cursor.setAttribute(key, value)
    const when = new Date((history.now - SAMPLES + 1 + i) * history.step_ms)
    const figures = series.map(({ label, unit }, n) => `${label} ${shown[n][i] === null ? "–" : unit(shown[n][i])}`)
    read.textContent = [`${clock(when)} UTC`, ...figures].join(" · ")
  }
  svg.onpointerleave = () => { cursor.setAttribute("visibility", "hidden"); read.textContent = "" }
  draw()
  page.charts.push([svg, draw])
  const keys = series.length > 1 && el("span", { class: "legend" }, series.map(({ label }) => el("span", {}, label)))
  const hours = ["60 min ago", "45", "30", "15", "now"].map(text => el("span", {}, text))
  return el("figure", { class: "chart" },
    el("figcaption", {}, el("span", { class: "title" }, title), keys, read),
    el("div", { class: "plot" }, top, svg), el("div", { class: "hours", "aria-hidden": "true" }, hours))
}
