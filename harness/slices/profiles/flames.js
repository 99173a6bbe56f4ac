// Flamegraphs on canvases, next to each other, with one search. flames.py says what `data` holds.
//
// Names come from files that anybody may have written: they reach the page as canvas text and textContent alone.

const ROW = 22;
const LEAST_PX = 0.4; // a narrower box is not drawn, nor is what it calls
const FONT_PX = 12;
const apps = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  let app = apps.get(parentElement);
  if (!app) {
    app = new App(parentElement.querySelector(".flames"));
    apps.set(parentElement, app);
  }
  app.show(data, (text) => setStateValue("find", text));
  return () => {
    app.close();
    apps.delete(parentElement);
  };
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text) made.textContent = text;
  return made;
}

// As words.milliseconds writes a duration.
function milliseconds(ms) {
  const size = Math.abs(ms);
  if (size < 0.1) return `${Number((ms * 1000).toPrecision(3))} µs`;
  return size < 1000 ? `${Number(ms.toPrecision(3))} ms` : `${Math.round(ms).toLocaleString("en")} ms`;
}

function signed(ms) {
  return `${ms < 0 ? "−" : "+"}${milliseconds(Math.abs(ms))}`;
}

function percent(share) {
  return `${Number((100 * share).toPrecision(3))} %`;
}

// A column of numbers, which flames.py packs as float32 in base64.
function unpacked(text) {
  return new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

class App {
  constructor(root) {
    this.root = root;
    this.key = "";
    this.pictures = [];
    const bar = element("div", "bar");
    const label = element("label", "", "Search");
    this.input = element("input", "");
    this.input.type = "search";
    this.input.placeholder = "part of a function's or a file's name";
    label.append(this.input);
    bar.append(label);
    this.legend = element("div", "legend");
    this.row = element("div", "pictures");
    this.tip = element("div", "tip");
    this.tip.hidden = true;
    root.replaceChildren(bar, this.legend, this.row, this.tip);
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("change", () => this.keep(this.input.value));
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(root);
  }

  show(data, keep) {
    this.keep = keep;
    const background = getComputedStyle(this.root).getPropertyValue("--st-background-color");
    this.colours = isDark(background) ? data.colours.dark : data.colours.light;
    const key = JSON.stringify(data.pictures.map((picture) => [picture.title, picture.alt, picture.level.length]));
    if (key !== this.key) {
      this.key = key;
      this.input.value = data.find;
      this.pictures = data.pictures.map((picture) => new Picture(this, picture));
      this.row.replaceChildren(...this.pictures.map((picture) => picture.root));
    }
    this.legend.replaceChildren(...data.legend.map(([fill, striped, text]) => this.swatch(fill, striped, text)));
    this.search();
  }

  swatch(fill, striped, text) {
    const shown = element("span", "", "");
    const canvas = element("canvas", "");
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [18 * ratio, 14 * ratio];
    canvas.style.cssText = "width:18px;height:14px";
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = this.colours.fills[fill];
    pen.fillRect(0, 0, 18, 14);
    if (striped) stripes(pen, this.colours, 0, 0, 18, 14);
    shown.append(canvas, element("span", "", text));
    return shown;
  }

  search() {
    const text = this.input.value.trim().toLowerCase();
    for (const picture of this.pictures) picture.search(text);
    this.draw();
  }

  draw() {
    for (const picture of this.pictures) picture.draw();
  }

  point(picture, box, event) {
    this.tip.hidden = box === null;
    if (box === null) return;
    this.tip.textContent = picture.tell(box);
    const frame = this.root.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, frame.width - width))}px`;
    this.tip.style.top = `${y + 20 + height > frame.height && y > height + 12 ? y - height - 12 : y + 20}px`;
  }

  close() {
    this.sizes.disconnect();
  }
}

class Picture {
  constructor(app, boxes) {
    this.app = app;
    this.boxes = { ...boxes };
    for (const column of boxes.columns) this.boxes[column] = unpacked(boxes[column]);
    this.count = this.boxes.level.length;
    this.differs = boxes.delta !== undefined;
    this.zoomed = 0;
    this.view = [0, 1]; // where the picture begins and how much of the full width it has
    this.focused = 0;
    this.found = null;
    this.lookUp();
    this.root = element("div", "picture");
    const head = element("div", "head");
    this.result = element("span", "found");
    this.result.setAttribute("role", "status");
    this.out = element("button", "", "Zoom out");
    this.out.type = "button";
    this.out.addEventListener("click", () => this.zoom(0));
    head.append(element("strong", "", boxes.title), this.result, this.out);
    this.canvas = element("canvas", "");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute(
      "aria-label",
      `${boxes.alt} Arrow keys go from box to box, Enter enlarges one, Escape shows all again.`,
    );
    this.told = element("div", "told");
    this.told.setAttribute("aria-live", "polite");
    this.told.textContent =
      "A click or Enter enlarges a box, then the wheel zooms; Escape shows all again; arrow keys go from box to box.";
    this.root.append(head, this.canvas, this.told);
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse") this.app.point(this, this.at(event), event);
    });
    this.canvas.addEventListener("pointerleave", (event) => this.app.point(this, null, event));
  }

  // Boxes stand in the order callers first: `parent` and `end` (first box that is not below) follow from the levels.
  lookUp() {
    const { level } = this.boxes;
    this.parent = new Int32Array(this.count).fill(-1);
    this.end = new Int32Array(this.count).fill(this.count);
    this.levels = 0;
    const open = [];
    for (let box = 0; box < this.count; box++) {
      while (open.length && level[open[open.length - 1]] >= level[box]) this.end[open.pop()] = box;
      if (open.length) this.parent[box] = open[open.length - 1];
      open.push(box);
      this.levels = Math.max(this.levels, level[box] + 1);
    }
  }

  search(text) {
    const { names, places, name, place, w } = this.boxes;
    this.result.textContent = "";
    this.found = null;
    if (!text) return;
    const named = names.map((one) => one.toLowerCase().includes(text));
    const placed = places.map((one) => one.toLowerCase().includes(text));
    this.found = new Uint8Array(this.count);
    let matches = 0;
    const outermost = [];
    let inside = 0;
    for (let box = 1; box < this.count; box++) {
      if (!named[name[box]] && !placed[place[box]]) continue;
      this.found[box] = 1;
      matches++;
      if (box < inside) continue; // its time is in that of the caller that matches too
      inside = this.end[box];
      outermost.push(box);
    }
    this.result.textContent = `${matches} ${matches === 1 ? "box" : "boxes"}: ${this.sum(outermost)}`;
  }

  sum(chosen) {
    const { samples, totals, sides, time, time2 } = this.boxes;
    const added = (column) => chosen.reduce((sum, box) => sum + column[box], 0);
    if (this.differs) {
      const [before, after] = [added(time), added(time2)];
      return `${sides[0]} ${milliseconds(before)}, ${sides[1]} ${milliseconds(after)}: ${signed(after - before)}`;
    }
    const share = Math.min(1, added(this.boxes.share));
    const error = this.boxes.reach * Math.sqrt((share * (1 - share)) / samples[0]);
    const amount = totals[0] === null ? "" : ` (${milliseconds(share * totals[0])})`;
    return `${percent(share)} ± ${percent(error)}${amount}`;
  }

  amount(box) {
    const { time, totals, share, delta, sure, only, sides } = this.boxes;
    if (!this.differs) return totals[0] === null ? percent(share[box]) : milliseconds(time[box]);
    const where = only[box] < 0 ? "" : `only in ${sides[only[box]]} `;
    return sure[box] ? `${where}${signed(delta[box])}` : `${where}≈`;
  }

  tell(box) {
    const { names, places, name, place, scale, sides, samples, totals, reach } = this.boxes;
    const { share, own, time, error, time2, error2, delta, deltaError, sure, only } = this.boxes;
    const lines = box ? [names[name[box]], places[place[box]]] : [scale];
    if (this.differs) {
      const within = (errors) => (errors ? ` ± ${milliseconds(errors[box])}` : "");
      lines.push(
        `${sides[0]}: ${milliseconds(time[box])}${within(error)} a call`,
        `${sides[1]}: ${milliseconds(time2[box])}${within(error2)} a call`,
        `difference ${signed(delta[box])}${deltaError[box] ? within(deltaError) : ""}` +
          (sure[box] || box === 0 ? "" : ", which may be chance") +
          (only[box] < 0 ? "" : `; only in ${sides[only[box]]}`),
      );
    } else {
      const spread = reach * Math.sqrt((share[box] * (1 - share[box])) / samples[0]);
      if (totals[0] !== null) lines.push(`${milliseconds(time[box])} ± ${milliseconds(error[box])} a call`);
      lines.push(
        `${percent(share[box])} ± ${percent(spread)} of ${samples[0]} samples, ${percent(own[box])} its own`,
      );
    }
    return lines.filter(Boolean).join("\n");
  }

  draw() {
    const { canvas, boxes, app } = this;
    const width = canvas.clientWidth;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    const height = this.levels * ROW;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `${FONT_PX}px ${getComputedStyle(canvas).fontFamily}`;
    pen.textBaseline = "middle";
    this.letter = pen.measureText("abcdefghijklmnopqrstuvwxyz_.").width / 28;
    this.drawn = Array.from({ length: this.levels }, () => []);
    const { x, w } = boxes;
    const [left, span] = this.view;
    for (let box = 0; box < this.count; ) {
      const [from, to] = [x[box], x[box] + w[box]].map((edge) => ((edge - left) / span) * width);
      if (to - from < LEAST_PX || to < LEAST_PX || from > width - LEAST_PX) {
        box = this.end[box];
        continue;
      }
      const outer = from < -0.5 || to > width + 0.5;
      this.box(pen, box, Math.max(from, 0), Math.min(to, width) - Math.max(from, 0), outer);
      box++;
    }
    const whole = span === 1 && this.zoomed === 0;
    this.out.disabled = whole;
    canvas.dataset.boxes = this.drawn.reduce((sum, row) => sum + row.length, 0);
    canvas.dataset.zoomed = whole ? "" : boxes.names[boxes.name[this.zoomed]];
    canvas.dataset.focused = boxes.names[boxes.name[this.focused]];
    if (app.root.getRootNode().activeElement === canvas) this.ring(pen);
  }

  box(pen, box, left, wide, outer) {
    const { boxes, app } = this;
    const { colours } = app;
    const row = boxes.level[box];
    this.drawn[row].push([box, left, wide]);
    const top = row * ROW;
    const fill = boxes.fill[box];
    const faded = outer || (this.found !== null && !this.found[box]);
    if (fill < 0) {
      this.text(pen, boxes.scale, left, top, wide, colours.muted);
      return;
    }
    const gap = wide > 3 ? 1 : 0;
    pen.globalAlpha = faded ? 0.35 : 1;
    pen.fillStyle = colours.fills[fill];
    pen.fillRect(left, top, wide - gap, ROW - 1);
    const room = wide - gap;
    const name = room >= 26 ? `${boxes.names[boxes.name[box]]}  ${this.amount(box)}` : "";
    if (this.differs && boxes.only[box] >= 0 && wide > 3) {
      stripes(pen, colours, left, top, room, ROW - 1);
      pen.fillStyle = colours.fills[fill]; // no stripe runs through the words
      if (name) pen.fillRect(left, top, Math.min(name.length * this.letter + 8, room), ROW - 1);
    }
    pen.globalAlpha = 1;
    if (this.found !== null && this.found[box]) {
      pen.strokeStyle = colours.text;
      pen.lineWidth = 1.5;
      pen.strokeRect(left + 0.75, top + 0.75, Math.max(wide - gap - 1.5, 0.5), ROW - 2.5);
    }
    if (name) {
      this.text(pen, name, left, top, room, colours.text, faded);
    } else if (this.differs && boxes.sure[box] && room >= 10) {
      this.text(pen, boxes.delta[box] < 0 ? "−" : "+", left, top, room + 8, colours.text, faded);
    }
  }

  text(pen, text, left, top, room, ink, faded = false) {
    const most = Math.floor((room - 8) / this.letter);
    if (most < 1) return;
    pen.fillStyle = faded ? this.app.colours.muted : ink;
    const shown = text.length <= most ? text : `${text.slice(0, Math.max(most - 1, 1))}…`;
    pen.fillText(shown, left + 4, top + ROW / 2, room - 6);
  }

  ring(pen) {
    const row = this.boxes.level[this.focused];
    const place = this.drawn[row].find(([box]) => box === this.focused);
    if (!place) return;
    const [, left, wide] = place;
    pen.lineWidth = 5;
    pen.strokeStyle = this.app.colours.page;
    pen.strokeRect(left + 2, row * ROW + 2, Math.max(wide - 4, 2), ROW - 5);
    pen.lineWidth = 2.5;
    pen.strokeStyle = getComputedStyle(this.canvas).getPropertyValue("--st-primary-color");
    pen.strokeRect(left + 2, row * ROW + 2, Math.max(wide - 4, 2), ROW - 5);
  }

  at(event) {
    const frame = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const row = this.drawn?.[Math.floor(y / ROW)] ?? [];
    let [low, high] = [0, row.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      const [box, left, wide] = row[middle];
      if (x < left) high = middle - 1;
      else if (x >= left + wide) low = middle + 1;
      else return box;
    }
    return null;
  }

  click(event) {
    const box = this.at(event);
    this.app.point(this, null, event);
    if (box === null) return;
    this.focused = box;
    this.zoom(box === this.zoomed ? Math.max(this.parent[box], 0) : box);
  }

  zoom(box) {
    this.zoomed = box;
    this.view = box ? [this.boxes.x[box], this.boxes.w[box]] : [0, 1];
    if (this.focused < box || this.focused >= this.end[box]) this.focused = box;
    this.told.textContent = this.tell(this.focused);
    this.draw();
  }

  // About the place of the pointer, and only with a key held or after a click: else the page scrolls.
  wheel(event) {
    if (!event.ctrlKey && this.app.root.getRootNode().activeElement !== this.canvas) return;
    event.preventDefault();
    const [left, span] = this.view;
    const wanted = Math.min(1, Math.max(1e-4, span * 1.002 ** event.deltaY));
    const at = event.offsetX / this.canvas.clientWidth;
    this.view = [Math.min(Math.max(0, left + at * (span - wanted)), 1 - wanted), wanted];
    if (wanted === 1) this.zoomed = 0;
    this.draw();
  }

  press(event) {
    const row = this.drawn[this.boxes.level[this.focused]];
    const here = row.findIndex(([box]) => box === this.focused);
    const below = this.drawn[this.boxes.level[this.focused] + 1] ?? [];
    const next = {
      ArrowUp: () => this.parent[this.focused],
      ArrowDown: () => below.find(([box]) => this.parent[box] === this.focused)?.[0],
      ArrowLeft: () => row[here - 1]?.[0],
      ArrowRight: () => row[here + 1]?.[0],
      Home: () => 0,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.zoom(this.focused);
    else if (event.key === "Escape") this.zoom(0);
    else if (next) this.focus(next());
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  focus(box) {
    if (box === undefined || box < 0) return;
    this.focused = box;
    if (box < this.zoomed) this.zoom(box); // up from the enlarged box: what calls it
    this.told.textContent = this.tell(box);
    this.draw();
  }
}

function stripes(pen, colours, left, top, wide, high) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, wide, high);
  pen.clip();
  pen.strokeStyle = colours.page;
  pen.globalAlpha *= 0.55;
  pen.lineWidth = 2;
  pen.beginPath();
  for (let x = Math.floor((left - high) / 9) * 9; x < left + wide; x += 9) {
    pen.moveTo(x, top + high);
    pen.lineTo(x + high, top);
  }
  pen.stroke();
  pen.restore();
}

function isDark(colour) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillStyle = colour.trim(); // stays white where it is no colour
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(pen.fillStyle.slice(start, start + 2), 16));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128;
}
