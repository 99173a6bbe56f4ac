// On a small screen: bring the widget that was just changed to the top, with what it changed right below it.

const NARROW = 640; // pixels
let seen = 0;

export default function (component) {
  const { key, count } = component.data;
  if (count === seen) return;
  seen = count;
  if (window.innerWidth > NARROW) return;
  document.querySelector(`.st-key-${CSS.escape(key)}`)?.scrollIntoView({ block: "start" });
}
