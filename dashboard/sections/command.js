// A command, or an address, with a button that copies it.

export default function ({ data, parentElement }) {
  const code = document.createElement("code");
  code.textContent = data.command;
  const button = document.createElement("button");
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code); // where a page may not write to the clipboard, what is selected is one key away
    await navigator.clipboard?.writeText(data.command);
    button.textContent = navigator.clipboard ? "Copied" : "Selected";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  parentElement.querySelector(".command").replaceChildren(code, button);
}
