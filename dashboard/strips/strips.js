// Strips, teams and claims of the first page. picture.py says what `data` holds.
//
// Names come from files that anybody may have written: they reach the page as textContent and attributes alone.

const ROW = 4; // pixels from one interval to the next
const NAMED_ROW = 9; // where each has its name beside it
const PAD = 4;
const NARROW = 640; // pixels: on a small screen a tap goes to what it unfolded
const apps = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue, setTriggerValue } = component;
  let app = apps.get(parentElement);
  if (!app) {
    app = { root: parentElement.querySelector(".strips"), shown: "", open: null, rows: new Map() };
    apps.set(parentElement, app);
  }
  app.search = (words) => setTriggerValue("search", words);
  app.go = (index) => setTriggerValue("go", index);
  app.choose = (index) => setStateValue("open", index);
  const shown = JSON.stringify([data.kind, data.run, data.strips, data.teams, data.rows]);
  if (shown !== app.shown) {
    app.shown = shown;
    app.rows.clear();
    app.queries = data.queries;
    app.root.replaceChildren(...(data.kind === "answer" ? answer(app, data) : claims(app, data)));
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

// Icon and word in the colour of a verdict.
function verdict(look) {
  const icon = element("span", "icon", look.icon);
  icon.setAttribute("aria-hidden", "true");
  icon.translate = false;
  const made = element("span", "verdict", icon, element("b", "", look.word));
  made.dataset.colour = look.colour;
  return made;
}

// A link to a claim's page: within the app where the mouse just clicks, in a tab of its own where it asks for one.
function link(app, index, ...children) {
  const made = element("a", "", ...children);
  made.href = `comparison?${new URLSearchParams(app.queries[index])}`;
  made.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    app.go(index);
  });
  return made;
}

// A link to the list of claims below, with only those of a team.
function filter(app, search, text) {
  const made = element("a", "", text);
  made.href = "#claims";
  made.addEventListener("click", (event) => {
    event.preventDefault();
    app.search(search);
    document.getElementById("claims")?.scrollIntoView({ block: "start" });
  });
  return made;
}

// Claimed range, intervals and the line of no difference on one axis.
function picture(drawn, small) {
  if (!drawn) return element("div", "picture none", "not measured");
  const named = !small && drawn.rows.some((row) => row.name);
  const gap = small ? Math.min(ROW, 30 / drawn.rows.length) : named ? NAMED_ROW : ROW;
  const height = 2 * PAD + gap * (drawn.rows.length - 1);
  const svg = shape("svg", { width: "100%", height, role: "img", "aria-label": drawn.alt });
  svg.append(shape("rect", { class: "track", x: 0, y: 0, width: "100%", height }));
  if (drawn.claimed) {
    const [low, high] = drawn.claimed;
    svg.append(shape("rect", { class: "claimed", x: percent(low), y: 0, width: percent(high - low), height }));
  }
  const upright = (name, share) =>
    svg.append(shape("line", { class: name, x1: percent(share), x2: percent(share), y1: 0, y2: height }));
  for (const edge of drawn.edges) upright("edge", edge);
  if (drawn.same !== null) upright("same", drawn.same);
  drawn.rows.forEach((row, index) => {
    if (row.at === null) return;
    const y = PAD + gap * index;
    const told = shape("title", {});
    told.textContent = row.told;
    const line = shape("line", { x1: percent(row.low), x2: percent(row.high), y1: y, y2: y });
    const dot = shape("circle", { cx: percent(row.at), cy: y, r: gap < 5 ? 2 : 3, class: row.hollow ? "hollow" : "" });
    const group = shape("g", { class: "interval" }, told, line, dot);
    group.dataset.colour = row.colour;
    if (named) {
      const left = row.high > 0.75; // no room at the right
      const over = left && row.low < 0.25; // nor at the left: on the longer part of the line
      const atEnd = over ? row.high - row.at < row.at - row.low : left;
      const end = over ? !atEnd : left;
      const place = { x: percent(atEnd ? row.low : row.high), y: y + 4, dx: end ? -6 : 6, class: over ? "over" : "" };
      group.append(shape("text", { ...place, "text-anchor": end ? "end" : "start" }, row.name));
    }
    svg.append(group);
  });
  const made = element("div", "picture", svg);
  if (!small) {
    const axis = element("div", "axis");
    for (const [share, text] of drawn.labels) {
      const label = element("span", share < 0.08 ? "left" : share > 0.92 ? "right" : "", text);
      label.style.left = percent(share);
      axis.append(label);
    }
    made.append(axis);
  }
  return made;
}

function legend(claimed, sure) {
  const item = (name, text) => {
    const svg = shape("svg", { width: 26, height: 14, "aria-hidden": "true" });
    if (name === "claimed") svg.append(shape("rect", { class: name, x: 1, y: 1, width: 24, height: 12 }));
    else if (name === "same") svg.append(shape("line", { class: name, x1: 13, x2: 13, y1: 0, y2: 14 }));
    else {
      const group = shape("g", { class: "interval" }, shape("line", { x1: 2, x2: 24, y1: 7, y2: 7 }));
      group.append(shape("circle", { cx: 13, cy: 7, r: 3 }));
      group.dataset.colour = "gray";
      svg.append(group);
    }
    return element("span", "", svg, text);
  };
  return element(
    "div",
    "legend",
    item("claimed", claimed),
    item("interval", `measured on one workload, with its ${sure} interval`),
    item("same", "no difference"),
    element("span", "", claimed === "claimed" ? "green: as claimed; orange: not; hollow: open" : "hollow: open"),
    element("span", "", "each row has a scale of its own"),
  );
}

function answer(app, data) {
  const strips = data.strips.map((each) =>
    element(
      "div",
      "strip",
      element(
        "div",
        "told",
        element("div", "question", link(app, each.index, each.question), " ", element("span", "quiet", each.who)),
        element("div", "answer", verdict(each.look), each.text ? `: ${each.text}` : ""),
      ),
      picture(each.picture, false),
    ),
  );
  const teams = data.teams.map((team) => {
    const said = team.said.map((each) =>
      element("li", "", verdict(each.look), " ", link(app, each.index, each.text)),
    );
    const picks = team.picks.map((pick) => {
      const told = element("summary", "", element("b", "", pick.picked), element("span", "quiet", `: ${pick.by}`));
      return element("li", "", element("details", "rule", told, element("div", "quiet", `${pick.rule} (${pick.says})`)));
    });
    const made = element("section", "team", element("h3", "", team.name));
    const rules = picks.length ? element("ul", "", ...picks) : element("div", "quiet", team.without);
    if (team.without) made.append(element("h4", "", "By its own rule"), rules);
    made.append(element("h4", "", "What it said"));
    if (team.search) made.append(element("div", "quiet", filter(app, team.search, team.all)));
    made.append(element("ul", "", ...said));
    return made;
  });
  return [legend(data.claimed, data.sure), ...strips, element("div", "teams", ...teams)];
}

function claims(app, data) {
  return data.rows.map((row) => {
    const summary = element(
      "summary",
      "",
      verdict(row.look),
      element("span", "told", element("b", "", row.title), element("span", "sentence", row.sentence)),
      picture(row.picture, true),
      element("span", "tally", row.tally),
    );
    const made = element("details", "claim", summary);
    made.dataset.index = row.index;
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
  });
}

// The parts of a claim, made when they are first looked at.
function fill(app, made, row) {
  if (made.querySelector(".part")) return;
  for (const part of row.parts) {
    const told = element("div", "told");
    told.append(element("div", "", verdict(part.look), " ", element("b", "", part.title)));
    told.append(element("div", "sentence", part.sentence));
    if (part.tally) told.append(element("div", "quiet", part.tally));
    if (part.command) {
      const cost = part.cost ? `To settle it (${part.cost}): ` : "To settle it: ";
      told.append(element("div", "quiet", cost, element("code", "", part.command)));
    }
    told.append(link(app, part.index, "Evidence"));
    made.append(element("div", "part", told, picture(part.picture, false)));
  }
  const above = element("a", "above", "↑ The answer to this in words, above the list");
  above.href = "#who";
  above.addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("who")?.scrollIntoView({ block: "center" });
  });
  made.append(above);
}

function unfold(app, index, scroll) {
  app.open = index;
  const made = app.rows.get(index);
  for (const each of app.root.querySelectorAll(".claim[open]")) if (each !== made) each.open = false;
  if (!made) return;
  made.open = true;
  if (scroll) made.scrollIntoView({ block: "start" });
}
