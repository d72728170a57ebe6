// Shows the rows alone, of all lists on the page, that have what somebody types.
const search = document.getElementById("search");
const found = search.querySelector("output");
const rows = document.querySelectorAll("main tbody tr");
search.hidden = false;
search.querySelector("input").addEventListener("input", (event) => {
  const words = event.target.value.trim().toLowerCase();
  let shown = 0;
  for (const row of rows) {
    row.hidden = !row.textContent.toLowerCase().includes(words);
    shown += row.hidden ? 0 : 1;
  }
  if (words) for (const folded of document.querySelectorAll("details")) folded.open = true;
  found.textContent = words ? `${shown} of ${rows.length} rows` : "";
});
