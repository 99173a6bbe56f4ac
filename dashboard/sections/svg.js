// A picture that the server wrote (export/svg.py, which escapes all text of files), and its content in words; buttons save it.

export default function ({ data, parentElement }) {
  const place = parentElement.querySelector(".svg");
  place.innerHTML = data.svg;
  const drawn = place.querySelector("svg");
  drawn.querySelector(":scope > title").remove(); // it would show wherever the mouse is
  drawn.style.fontFamily = "inherit";
  drawn.setAttribute("aria-label", data.alt);
  const buttons = document.createElement("div");
  buttons.append(button("SVG", () => save(new Blob([data.svg], { type: "image/svg+xml" }), `${data.name}.svg`)));
  buttons.append(button("PNG", () => png(data, drawn.clientWidth, drawn.clientHeight)));
  place.append(buttons);
}

function button(kind, act) {
  const made = document.createElement("button");
  made.textContent = kind;
  made.title = `Save this picture as ${kind}`;
  made.addEventListener("click", act);
  return made;
}

function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Twice as fine as it is shown.
function png(data, width, height) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * width, 2 * height];
    const pen = canvas.getContext("2d");
    pen.fillStyle = data.page;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((content) => save(content, `${data.name}.png`));
  };
  const sized = data.svg.replace('width="100%"', `width="${width}"`);
  image.src = `data:image/svg+xml,${encodeURIComponent(sized)}`;
}
