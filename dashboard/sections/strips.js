// Cards, matrix and teams of the first page. strips.py says what `data` holds.
//
// Names come from files that anybody may have written: they reach the page as textContent and attributes alone.

const ROW = 4; // pixels from one interval to the next
const PAD = 4;
const HIGHEST = 36; // of a strip
const FEW = 12; // claims, of which none is folded away
const NARROW = 640; // pixels: on a small screen a tap goes to what it unfolded
const apps = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue, setTriggerValue } = component;
  let app = apps.get(parentElement);
  if (!app) {
    app = { root: parentElement.querySelector(".strips"), shown: "", open: null, rows: new Map() };
    apps.set(parentElement, app);
  }
  app.go = (place) => setTriggerValue("go", place);
  app.choose = (index) => setStateValue("open", index);
  const shown = JSON.stringify([data.kind, data.run, data.cards, data.rows, data.teams, data.whole]);
  if (shown !== app.shown) {
    app.shown = shown;
    app.rows.clear();
    app.queries = data.queries;
    app.page = data.page;
    app.root.replaceChildren(...(data.kind === "answer" ? data.cards.map((each) => card(app, each)) : claims(app, data)));
    app.open = null;
  }
  if (data.kind === "claims" && data.open !== app.open) unfold(app, data.open, data.scroll);
  return () => apps.delete(parentElement);
}

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== "").map(tag === "code" ? same : kept));
  return made;
}

const same = (child) => child; // a command is copied as it is

// A number and its unit stay on one line, as in words.py.
function kept(child) {
  return typeof child === "string" ? child.replace(/(?<=[\d×]) (?=(%|ms|µs|s|min|h)([^\w%]|$))/g, "\u00a0") : child;
}

function shape(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const percent = (share) => `${(100 * share).toFixed(3)}%`;

function icon(name, colour) {
  const made = element("span", "icon", name);
  made.setAttribute("aria-hidden", "true");
  made.translate = false;
  if (colour) made.dataset.colour = colour;
  return made;
}

// Icon and word in the colour of a verdict.
function verdict(look) {
  const made = element("span", "verdict", icon(look.icon), element("b", "", look.word));
  made.dataset.colour = look.colour;
  return made;
}

// A link to the evidence of a claim: within the app where the mouse just clicks, in a tab of its own where it asks for
// one.
function link(app, index, workload, ...children) {
  const made = element("a", "", ...children);
  const query = { ...app.queries[index], ...(workload ? { workload } : {}) };
  made.href = `${app.page}?${new URLSearchParams(query)}`;
  made.addEventListener("click", (event) => {
    event.stopPropagation(); // what it lies in does not unfold
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    app.go({ index, workload: workload || "" });
  });
  return made;
}

function card(app, each) {
  const there = element("a", "", `The run ${each.name} has it`);
  if (each.elsewhere) there.href = `?${new URLSearchParams(each.elsewhere)}`;
  if (each.told) {
    const heads = Object.keys(each.rows?.[0] || {});
    const cells = (row, tag) => element("tr", "", ...heads.map((name) => element(tag, "", tag === "th" ? name : row[name])));
    const table = each.rows ? element("table", "", cells(null, "th"), ...each.rows.map((row) => cells(row, "td"))) : null;
    return element("section", table ? "card change" : "card", element("div", "question", each.question), table, element("div", "quiet", each.told, each.elsewhere ? ". " : "", each.elsewhere ? there : null));
  }
  if (each.elsewhere) {
    return element("section", "card", element("div", "question", each.question), element("div", "quiet", "Not asked in this run. ", there));
  }
  const made = element(
    "section",
    "card",
    element("div", "question", link(app, each.index, "", each.short || each.question)),
    element("div", "quiet", each.short && each.question),
    element("div", "answer", verdict(each.look), " ", each.text),
    element("div", "quiet", each.said),
    each.beside.length ? element("details", "quiet", element("summary", "", "Also measured"), ...each.beside.map((text) => element("div", "", text))) : null,
  );
  made.title = each.sentence;
  return made;
}

// Claimed range, intervals and the line of no difference on the axis of all.
function picture(drawn) {
  if (!drawn) return element("div", "picture");
  const gap = Math.min(ROW, HIGHEST / drawn.rows.length);
  const height = 2 * PAD + gap * (drawn.rows.length - 1);
  const svg = shape("svg", { width: "100%", height, role: "img", "aria-label": drawn.alt });
  svg.append(shape("rect", { class: "track", x: 0, y: 0, width: "100%", height }));
  if (drawn.claimed) {
    const [low, high] = drawn.claimed;
    svg.append(shape("rect", { class: "claimed", x: percent(low), y: 0, width: percent(high - low), height }));
  }
  svg.append(shape("line", { class: "same", x1: percent(drawn.same), x2: percent(drawn.same), y1: 0, y2: height }));
  drawn.rows.forEach((row, index) => {
    const y = PAD + gap * index;
    const told = shape("title", {});
    told.textContent = row.told;
    const line = shape("line", { x1: percent(row.low), x2: percent(row.high), y1: y, y2: y });
    const dot = shape("circle", { cx: percent(row.at), cy: y, r: 2.5, class: row.hollow ? "hollow" : "" });
    const group = shape("g", { class: "interval" }, told, line, dot);
    group.dataset.colour = row.colour;
    svg.append(group);
  });
  drawn.beyond.forEach((text, right) => {
    const label = shape("text", { class: "beyond", x: right ? "100%" : 0, dx: right ? -8 : 8, y: height / 2 });
    label.setAttribute("text-anchor", right ? "end" : "start");
    label.textContent = text;
    svg.append(label);
  });
  return element("div", "picture", svg);
}

function legend(claimed, sure) {
  const item = (name, text) => {
    const svg = shape("svg", { width: 26, height: 14, "aria-hidden": "true" });
    if (name === "claimed") svg.append(shape("rect", { class: name, x: 1, y: 1, width: 24, height: 12 }));
    else {
      const group = shape("g", { class: "interval" }, shape("line", { x1: 2, x2: 24, y1: 7, y2: 7 }));
      group.append(shape("circle", { cx: 13, cy: 7, r: 3 }));
      group.dataset.colour = "gray";
      svg.append(group);
    }
    return element("span", "", svg, text);
  };
  return element("div", "legend", item("claimed", claimed), item("interval", `${sure} interval, one a workload`), element("span", "", "hollow: inconclusive"));
}

// -- the matrix --------------------------------------------------------------------------------------------------------

function cell(app, index, each) {
  if (!each) return element("span", "cell");
  const many = each.count > 1 ? element("div", "quiet", `${each.count} values`) : null;
  const made = link(app, index, each.workload, icon(each.icon, each.colour), each.text, many);
  made.title = each.told;
  return element("span", "cell", made);
}

// Marks, and on how many workloads, of those without a column.
function others(app, index, some) {
  const marks = some.map((each) => {
    const made = link(app, index, each.workload, icon(each.icon, each.colour), each.places);
    made.title = each.told;
    return made;
  });
  return element("span", "cell others", ...marks);
}

const numbers = (app, row) => [
  ...row.cells.map((each) => cell(app, row.index, each)),
  others(app, row.index, row.rest),
  picture(row.picture),
];

function head(data) {
  const columns = data.columns.map((names) => element("span", "cell", ...names.map((name) => element("div", "", name))));
  const axis = element("div", "axis");
  for (const [share, text] of data.ticks) {
    const label = element("span", share < 0.08 ? "left" : share > 0.92 ? "right" : "", text);
    label.style.left = percent(share);
    axis.append(label);
  }
  return element("div", "grid head", element("span"), ...columns, element("span", "cell", "others"), element("div", "", "← slower · faster →", axis));
}

function claims(app, data) {
  app.root.style.setProperty("--columns", "minmax(0, 7fr) ".repeat(data.columns.length));
  const rows = data.rows.map((row) => claim(app, row));
  const shown = data.whole || rows.length <= FEW ? rows.length : data.main;
  const more = element("details", "more", element("summary", "", `${rows.length - shown} further claims`), ...rows.slice(shown));
  return [
    legend(data.claimed, data.sure),
    head(data),
    ...rows.slice(0, shown),
    ...(rows.length > shown ? [more] : []),
    ...(data.teams.length ? [element("div", "teams", ...data.teams.map((each) => team(app, each)))] : []),
  ];
}

function claim(app, row) {
  const title = element("span", "told", verdict(row.look), " ", element("span", "title", row.title));
  const summary = element("summary", "grid", title, ...numbers(app, row));
  summary.title = row.sentence;
  const made = element("details", "claim", summary);
  for (const index of row.indices) app.rows.set(index, made);
  made.addEventListener("toggle", () => made.open && fill(app, made, row));
  summary.addEventListener("click", () => {
    app.open = made.open ? null : row.index; // the click comes before it turns
    if (app.open !== null && window.innerWidth <= NARROW) {
      fill(app, made, row);
      setTimeout(() => made.scrollIntoView({ block: "start" }));
    }
    app.choose(app.open);
  });
  return made;
}

// The parts of a claim, made when they are first looked at.
function fill(app, made, row) {
  if (made.querySelector(".part")) return;
  for (const part of row.parts) {
    const name = element("span", "told", verdict(part.look), " ", link(app, part.index, "", part.title));
    const told = element("div", "sentence", part.sentence, part.tally && ` ${part.tally}.`);
    const settle = part.cost ? `To settle it (${part.cost}): ` : "To settle it: ";
    const command = part.command ? element("div", "quiet", settle, element("code", "", part.command)) : null;
    made.append(element("div", "part", element("div", "grid", name, ...numbers(app, part)), told, command));
  }
}

function unfold(app, index, scroll) {
  app.open = index;
  const made = app.rows.get(index);
  for (const each of app.root.querySelectorAll(".claim[open]")) if (each !== made) each.open = false;
  if (!made) return;
  made.open = true;
  const more = made.closest(".more");
  if (more) more.open = true;
  if (scroll) made.scrollIntoView({ block: "start" });
}

// -- the teams ---------------------------------------------------------------------------------------------------------

function team(app, each) {
  const said = each.said.map((one) => element("li", "", verdict(one.look), " ", link(app, one.index, "", one.text)));
  const picks = each.picks.map((pick) => {
    const told = element("summary", "", element("b", "", pick.picked), element("span", "quiet", `: ${pick.by}`));
    return element("li", "", element("details", "rule", told, element("div", "quiet", `${pick.rule} (${pick.says})`)));
  });
  const made = element("section", "team", element("h3", "", each.name));
  made.append(element("div", "quiet", each.all));
  made.append(element("ul", "", ...said));
  const rules = picks.length ? element("ul", "", ...picks) : element("div", "quiet", each.without);
  if (each.without) made.append(element("h4", "", "By its own rule"), rules);
  return made;
}
