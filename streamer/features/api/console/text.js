/* Formats values as text: invisible characters are spelled out, numbers have their units. */

const LONG = 120 // characters of a name before it is cut
export const SENTENCE = 1000 // of the streamer's own sentences, which say why

/** Invisible characters: controls, joiners, changes of text direction, white space other than the space. */
const UNSEEN = new RegExp(
  String.raw`[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034F\u115F\u1160\u17B4\u17B5\u3164\uFFA0\uFE00-\uFE0F` +
  String.raw`\u{E0100}-\u{E01EF}]|[^\S ]`, "u")

const codepoint = char => "U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")

/** The characters of a text in runs: [text, whether it is the name of an invisible character]. */
export function runs(chars, allowed = "") {
  const found = []
  for (const char of chars) {
    const hidden = UNSEEN.test(char) && !allowed.includes(char)
    if (!hidden && found.length && !found.at(-1)[1]) found.at(-1)[0] += char
    else found.push([hidden ? codepoint(char) : char, hidden])
  }
  return found
}

/** The characters at the beginning and the end of a long text. */
export function cut(value, most = LONG) {
  const chars = [...String(value)]
  return chars.length <= most ? { all: chars, head: chars } : { all: chars, head: chars.slice(0, most - 20), isCut: true }
}

/** A name from outside as a string, for titles and labels. */
export function said(value) {
  const { head, isCut } = cut(value ?? "–")
  return runs(head).map(([text, hidden]) => hidden ? `<${text}>` : text).join("") + (isCut ? "…" : "")
}

export const words = value => said(value ?? "").replaceAll("_", " ").toLowerCase()

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
export const count = value => typeof value === "number" ? grouped.format(value) : "–"
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`
export const rate = value =>
  typeof value !== "number" ? "–" : `${value > 0 && value < 10 ? value.toFixed(1) : grouped.format(value)} /s`

export function bytes(value) {
  if (typeof value !== "number") return "–"
  const units = ["B", "KiB", "MiB", "GiB", "TiB"]
  let unit = 0
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024
  return `${unit && value < 100 ? value.toFixed(1) : grouped.format(value)} ${units[unit]}`
}

export function span(seconds) {
  if (typeof seconds !== "number" || !isFinite(seconds)) return "–"
  if (seconds <= 0) return "0 s"
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]
  const first = units.findIndex(([, size]) => seconds >= size)
  const [[big, size], [small, next]] = units.slice(first, first + 2)
  const rest = Math.floor(seconds % size / next)
  return `${Math.floor(seconds / size)} ${big}` + (rest ? ` ${rest} ${small}` : "")
}

export const ago = age_s => age_s < 0 ? `${span(-age_s)} ahead: the clock was set back since` : `${span(age_s)} ago`

/** Formats a time in UTC, as in the logs. */
export function moment(iso) {
  const at = new Date(iso)
  return isNaN(at) ? said(iso) : at.toISOString().slice(0, 19).replace("T", " ")
}
export const clock = iso => moment(iso).slice(11)
