"use strict";
// Shows openapi.json as a page. FastAPI's own would load scripts from elsewhere; this one works without a network.

function resolved(value, all) {
  if (Array.isArray(value)) return value.map((item) => resolved(item, all));
  if (value === null || typeof value !== "object") return value;
  if (value.$ref) return resolved(value.$ref.split("/").slice(1).reduce((part, key) => part[key], all), all);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, all)]));
}

function folded(title, content) {
  const box = made("details");
  box.append(made("summary", "", title), made("pre", "", JSON.stringify(content, null, 2)));
  return box;
}

function table(rows) {
  const grid = made("table");
  for (const cells of rows) {
    const line = made("tr");
    for (const cell of cells) {
      const box = made("td");
      box.append(cell);
      line.append(box);
    }
    grid.append(line);
  }
  return grid;
}

function example(path, json) {
  const url = new URL(path.slice(1), document.baseURI).href;
  return made("pre", "", `curl ${url} \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(json)}'`);
}

function call(path, verb, about, all) {
  const box = made("section", "call"), title = made("h2");
  title.append(made("span", "verb", verb.toUpperCase()), made("code", "", path));
  box.append(title, made("p", "", about.description || ""));
  if (about.parameters) {
    box.append(made("h3", "", "Query"));
    box.append(table(about.parameters.map((one) => [made("code", "", one.name), one.description || "",
      made("code", "", JSON.stringify(resolved(one.schema, all)))])));
  }
  for (const [kind, content] of Object.entries(about.requestBody?.content || {})) {
    box.append(made("h3", "", `Body: ${kind}`));
    if (content.example) box.append(example(path, content.example));
    box.append(folded("schema", resolved(content.schema, all)));
  }
  box.append(made("h3", "", "Answers"));
  box.append(table(Object.entries(about.responses).map(([status, answer]) => {
    const kinds = made("div", "", answer.description);
    for (const [kind, content] of Object.entries(answer.content || {}))
      kinds.append(folded(kind, resolved(content.schema || {}, all)));
    return [made("code", "", status), kinds];
  })));
  return box;
}

fetch("openapi.json").then((answer) => answer.json()).then((all) => {
  document.getElementById("title").textContent = `${all.info.title} ${all.info.version}: the API`;
  document.getElementById("about").textContent = all.info.description;
  for (const [path, verbs] of Object.entries(all.paths))
    for (const [verb, about] of Object.entries(verbs))
      document.getElementById("calls").append(call(path, verb, about, all));
}).catch((error) => { document.getElementById("about").textContent = `openapi.json cannot be read: ${error.message}`; });
