// A picture that the server wrote (export/svg.py, which escapes all text of files), and its content in words.

export default function ({ data, parentElement }) {
  const place = parentElement.querySelector("div");
  place.innerHTML = data.svg;
  const drawn = place.querySelector("svg");
  drawn.querySelector(":scope > title").remove(); // it would show wherever the mouse is
  drawn.style.fontFamily = "inherit";
  drawn.setAttribute("aria-label", data.alt);
}
