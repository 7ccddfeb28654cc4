/* The administration API: requests, the token, server-sent events. */

import { ask, announce, button, el, field, pieces } from "./elements.js"

const API = "../api/v1"
const ANSWER_S = 30
const SILENCE_S = 45 // the daemon says something every 15 s
const EVENT_CHARS = 4_000_000
const OURS = /^(application\/json|text\/event-stream)\b/
const FOREIGN = "Something between this page and the streamer answers, perhaps with a login: reload the page."

class Refused extends Error {
  constructor(status, answer) {
    super(answer.error ?? `The daemon answered ${status}.`)
    Object.assign(this, { status, problems: answer.problems })
  }
}

export async function request(path, { method = "GET", body, signal, isPermitted = false } = {}) {
  const headers = {}
  if (isPermitted && token.value) headers.Authorization = `Bearer ${token.value}`
  if (body) headers["Content-Type"] = "application/json"
  const late = new AbortController(), timer = body ? null : setTimeout(() => late.abort(), ANSWER_S * 1000)
  let answer
  try {
    answer = await fetch(API + path, {
      method, headers, body: body && JSON.stringify(body), cache: "no-store", redirect: "error",
      signal: AbortSignal.any([late.signal, ...signal ? [signal] : []]),
    })
  } catch (error) {
    if (signal?.aborted) throw error
    throw Object.assign(new Error("The streamer does not answer."), { isLost: true })
  } finally { clearTimeout(timer) }
  if (answer.ok && OURS.test(answer.headers.get("Content-Type"))) return answer
  if (answer.ok) throw Object.assign(new Error(FOREIGN), { isLost: true })
  throw new Refused(answer.status, await answer.json().catch(() => ({})))
}

export const get = async (path, signal) => (await request(path, { signal })).json()

/** A request that needs the token: prompts for it if it is missing or wrong, and then repeats the request once. */
export async function permitted(path, options = {}) {
  try { return await request(path, { ...options, isPermitted: true }) } catch (error) {
    if (error.status !== 401) throw error
    if (!await askToken(error.message)) throw new Error("Nothing was changed: this needs the token.")
    return request(path, { ...options, isPermitted: true })
  }
}

export const getPermitted = async (path, signal) => (await permitted(path, { signal })).json()
export const post = async (path, body) => (await permitted(path, { method: "POST", body })).json()

/** The parameters that are set, as the query of a URL. */
export function query(params) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "")
  return given.length ? `?${new URLSearchParams(given)}` : ""
}

/** Yields the events of a stream, as {event, data}, until it ends. Aborts a stream that is silent for too long. */
export async function* events(answer, abort) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  for (let text = ""; text.length < EVENT_CHARS;) {
    const timer = setTimeout(() => abort.abort(), SILENCE_S * 1000)
    const { done, value } = await reader.read().finally(() => clearTimeout(timer))
    if (done) return
    const blocks = (text + value).split("\n\n")
    text = blocks.pop()
    for (const block of blocks) {
      const value = key => block.split("\n").find(line => line.startsWith(`${key}: `))?.slice(key.length + 2)
      if (value("data")) yield { event: value("event"), data: JSON.parse(value("data")) }
    }
  }
  throw new Error("The daemon sent an event without end.")
}

export const sleep = (ms, signal) => new Promise(resolve => {
  const timer = setTimeout(resolve, ms)
  signal?.addEventListener("abort", () => { clearTimeout(timer); resolve() }, { once: true })
})

// ---------------------------------------------------------------- the token

/** Stores the token in memory, and in the tab's storage if `isKept`; nowhere else. */
const token = { value: sessionStorage.getItem("token") ?? "" }

export const hasToken = () => token.value !== ""

function keep(value, isKept) {
  token.value = value
  if (value && isKept) sessionStorage.setItem("token", value)
  else sessionStorage.removeItem("token")
  drawToken()
}

export function drawToken() {
  document.getElementById("token").textContent = token.value ? "Token: set" : "Token…"
}

export function askToken(why = "") {
  const forget = button("Forget", event => {
    keep("", false)
    announce("The token is forgotten.")
    event.target.closest("dialog").close()
  })
  return ask({
    title: "Token", label: "Use", other: token.value ? [forget] : [],
    body: [
      why && el("p", { class: "hint" }, pieces(why)),
      el("p", {}, "To change something, or to see payloads, you need the token of ",
        el("code", {}, "control.http_token_file"), ". If that is not set, it is in the file ",
          el("code", {}, "journal-token"),
        " beside the journal. With a client certificate no token is needed."),
      field("Token", "token", { type: "password", required: true, autofocus: true }),
      el("label", { class: "check" }, el("input", { type: "checkbox", name: "keep" }),
        "Keep the token when the page is reloaded, until this tab is closed"),
    ],
    run: given => {
      if (!/^[\x21-\x7E]+$/.test(given.token ?? "")) throw new Error("A token has ASCII characters only, and no spaces.")
      keep(given.token, Boolean(given.keep))
    },
  })
}
