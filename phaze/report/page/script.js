"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(element(id).textContent);

  // Colours of the figures are names of the style's variables, so that they follow light, dark and print.
  const themed = (value) => {
    if (typeof value === "string" && value.startsWith("--"))
      return getComputedStyle(document.documentElement).getPropertyValue(value).trim();
    if (Array.isArray(value)) return value.map(themed);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner)]));
    return value;
  };

  const axis = (own) => ({
    gridcolor: "--line", zeroline: false, linecolor: "--line", automargin: true, tickfont: { size: 12 }, ...own,
  });
  const layout = (own) => themed({
    paper_bgcolor: "--page", plot_bgcolor: "--page", autosize: true, hovermode: "closest",
    font: { family: "system-ui, sans-serif", size: 13, color: "--ink" },
    margin: { l: 8, r: 12, t: 8, b: 8 },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 },
    hoverlabel: { bgcolor: "--page", bordercolor: "--line", font: { color: "--ink" }, align: "left" },
    ...own, xaxis: axis(own.xaxis), yaxis: axis(own.yaxis),
  });
  const narrow = window.matchMedia("(max-width: 40rem)");
  const config = {
    displaylogo: false, responsive: true, displayModeBar: !narrow.matches,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };
  const draw = (place, figure) => Plotly.react(place, themed(figure.data), layout(figure.layout), config);

  // The frontier: designs within the ranges, on the axes chosen.
  const LOOKS = {
    evaluated: { mode: "markers", marker: { color: "--c6", size: 5, opacity: 0.55 } },
    frontier: { mode: "markers", marker: { color: "--c1", size: 8 }, line: { color: "--c1", width: 1.5, shape: "hv" } },
    chips: { mode: "markers+text", textposition: "bottom left", marker: { color: "--c4", size: 10, symbol: "diamond" } },
    winner: { mode: "markers", marker: { color: "--c4", size: 16, symbol: "star", line: { color: "--ink", width: 1 } } },
  };
  const chosen = (side) => Number(element(`axis-${side}`).value);
  const bound = (id, otherwise) => (element(id).value === "" ? otherwise : Number(element(id).value));
  const within = (row, side) => {
    const value = row[chosen(side) + 1];
    return value !== null && value >= bound(`min-${side}`, -Infinity) && value <= bound(`max-${side}`, Infinity);
  };
  const hover = (axes, row) => [
    `<b>${row[0]}</b>`,
    ...axes.map((name, i) => (row[i + 1] === null ? null : `${name}: ${Number(row[i + 1].toPrecision(4)).toLocaleString("en")}`)),
  ].filter((line) => line !== null).join("<br>");

  const frontier = () => {
    const found = read("frontier-data");
    const [x, y] = [chosen("x"), chosen("y")];
    const firstView = x === found.x && y === found.y && found.rising;
    const edges = found.groups.filter((group) => group.role === "frontier");
    const hues = ["--c1", "--c3", "--c5", "--c2", "--soft"];
    const data = found.groups.map((group) => {
      const rows = group.rows.filter((row) => within(row, "x") && within(row, "y"));
      const look = structuredClone(LOOKS[group.role]);
      if (group.role === "chips" && narrow.matches) look.mode = "markers";
      if (group.role === "frontier") look.marker.color = look.line.color = hues[edges.indexOf(group) % hues.length];
      if (group.role === "frontier" && firstView) look.mode = "lines+markers";
      return {
        type: "scatter", name: group.name, ...look,
        x: rows.map((row) => row[x + 1]), y: rows.map((row) => row[y + 1]), text: rows.map((row) => row[0]),
        hovertext: rows.map((row) => hover(found.axes, row)), hovertemplate: "%{hovertext}<extra></extra>",
      };
    });
    const all = edges.flatMap((group) => group.rows);
    const kept = all.filter((row) => within(row, "x") && within(row, "y")).length;
    element("frontier-count").textContent = `${kept} of ${all.length} designs`;
    element("frontier-table").querySelectorAll("tbody tr").forEach((line, i) => {
      line.hidden = !(within(all[i], "x") && within(all[i], "y"));
    });
    const names = found.axes.map(escaped);
    return draw("frontier-plot", { data, layout: { xaxis: { title: { text: names[x] } }, yaxis: { title: { text: names[y] } } } });
  };
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const prepare = () => {
    if (!element("frontier-form")) return;
    const found = read("frontier-data");
    const clear = () => ["min-x", "max-x", "min-y", "max-y"].forEach((id) => { element(id).value = ""; });
    const first = () => { element("axis-x").value = found.x; element("axis-y").value = found.y; clear(); };
    first();
    element("frontier-form").addEventListener("input", (event) => {
      const side = { "axis-x": "x", "axis-y": "y" }[event.target.id];
      if (side) ["min", "max"].forEach((end) => { element(`${end}-${side}`).value = ""; });
      frontier();
    });
    element("frontier-form").addEventListener("submit", (event) => event.preventDefault());
    element("frontier-reset").addEventListener("click", () => { first(); frontier(); });
  };

  const drawAll = () => {
    if (!window.Plotly) return;
    document.querySelectorAll("[data-plot]").forEach((place) => draw(place, read(`${place.dataset.plot}-data`)));
    if (element("frontier-form")) frontier();
  };

  // Copies and downloads, all of what lies in the page.
  const save = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const cell = (part) => {
    const words = part.innerText.trim().replace(/\s+/g, " ");
    return /[",\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
  };
  const csv = (table) => [...table.rows].map((row) => [...row.cells].map(cell).join(",")).join("\n") + "\n";
  const copied = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  };
  const tables = () => {
    document.querySelectorAll("main .scroll > table").forEach((table, i) => {
      if (!table.tHead) return;
      const button = Object.assign(document.createElement("button"), { type: "button", className: "csv", textContent: "CSV" });
      const name = `${table.closest("section").id}-${i + 1}`;
      button.setAttribute("aria-label", `${table.caption?.innerText || name} as CSV`);
      button.addEventListener("click", () => save(name, csv(table)));
      table.parentElement.after(button);
    });
    document.querySelectorAll("[data-csv]").forEach((button) => {
      button.addEventListener("click", () => save(button.dataset.csv, read(`${button.dataset.csv}-csv`)));
    });
    document.querySelectorAll("[data-copy]").forEach((button) => {
      button.addEventListener("click", () => copied(button));
    });
  };

  // Plotly lies packed in the page; a browser too old to unpack it shows the tables instead.
  const unpack = async () => {
    const bytes = Uint8Array.from(atob(element("plotly").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  };
  const start = async () => {
    prepare();
    tables();
    try {
      await unpack();
      drawAll();
      document.documentElement.dataset.ready = "yes";
    } catch (error) {
      document.querySelectorAll(".plot").forEach((place) => {
        place.textContent = "This browser cannot draw the plot; the table below holds its figures.";
        place.style.height = "auto";
      });
      console.error(error);
    }
  };

  // Print in light colours, everything unfolded.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("main details.printed:not([open])")];
    folded.forEach((part) => { part.open = true; });
    drawAll();
  });
  window.addEventListener("afterprint", () => { folded.forEach((part) => { part.open = false; }); drawAll(); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  if (window.matchMedia("(max-width: 71.99rem)").matches) document.querySelector("nav details").open = false;
  start();
})();
