"use strict";
// Sentences in, translations out: each word coloured by its uncertainty, each sentence kept or rejected at a threshold.

const page = { said: [], by: "total", top: 1 };
const number = (value) => (value === null ? "–" : value.toPrecision(3));
const most = () => (page.top * $("most").value) / 1000;

function fail(reason) {
  $("problem").textContent = reason;
  $("problem").hidden = false;
}

async function ask(event) {
  event.preventDefault();
  $("problem").hidden = true;
  const lines = $("text").value.split("\n");
  try {
    const answer = await fetch("translate", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ text: lines }),
    });
    const content = await answer.json();
    if (!answer.ok) return fail(content.reason);
    page.said = content.answers;
  } catch (error) {
    return fail(`The service does not answer (${error.message}): is it still running?`);
  }
  show();
}

function word(one) {
  const value = one[page.by] ?? one.total, light = 96 - 46 * Math.min(1, value / page.top);
  const mark = made("mark", "", one.text);
  mark.style.backgroundColor = `hsl(335 60% ${light}%)`;
  mark.style.color = light < 62 ? "#fff" : "#111";
  mark.title = `total ${number(one.total)}, knowledge ${number(one.knowledge)}`;
  return mark;
}

function sentence(one) {
  const line = made("p", "translated"), value = one[page.by], kept = value <= most();
  for (const each of one.words) line.append(word(each), " ");
  const verdict = made("p", "note", `${kept ? "kept" : "rejected"}: ${page.by} ${number(value)} nats a token`);
  verdict.dataset.kept = kept;
  const block = made("div", kept ? "" : "reject");
  block.append(made("p", "note", one.source), line, verdict);
  return block;
}

function show() {
  $("most-label").textContent = `Reject translations with a ${page.by} above ${number(most())}`;
  $("waiting").hidden = page.said.length > 0;
  $("said").replaceChildren(...page.said.map(sentence));
}

async function begin() {
  const model = await (await fetch("model")).json();
  $("about").textContent = `${model.method} student ${model.fingerprint}`;
  const choices = model.measures.filter((name) => name === "total" || name === "knowledge");
  for (const name of choices.reverse()) {
    const label = made("label"), choice = made("input");
    Object.assign(choice, { type: "radio", name: "colour", value: name, checked: name === choices[0] });
    choice.addEventListener("change", () => { page.by = name; page.top = name === "total" ? 3 : 1; show(); });
    label.append(choice, made("span", "", name));
    $("colours").append(label);
  }
  page.by = choices[0];
  page.top = page.by === "total" ? 3 : 1;
  $("sentence").addEventListener("submit", ask);
  $("most").addEventListener("input", show);
  show();
}

begin();
