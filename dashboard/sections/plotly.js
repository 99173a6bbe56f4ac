// Loads a part of Streamlit's own page beside the script that is there.

export default function ({ data }) {
  const there = document.querySelector('script[src*="/static/js/"], script[src*="static/js/"]');
  if (there) import(new URL(data.file, there.src).href);
}
