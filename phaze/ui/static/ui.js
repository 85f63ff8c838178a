"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const ask = async (address, content) => {
    const answer = await fetch(address, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content ?? {}),
    });
    return answer.json();
  };
  const tell = (button, sentence) => {
    let place = button.parentElement.querySelector(".told");
    if (!place) {
      place = Object.assign(document.createElement("span"), { className: "told" });
      place.setAttribute("role", "alert");
      button.parentElement.append(place);
    }
    place.textContent = sentence;
  };
  const go = async (button, address, content, anchor) => {
    button.disabled = true;
    try {
      const answer = await ask(address, content);
      if (answer.error) tell(button, answer.error);
      else location.assign(answer.go + (anchor ?? ""));
    } catch {
      tell(button, "The server of this page has ended; start dse ui again.");
    }
    button.disabled = false;
  };

  // Buttons that start a command.
  document.querySelectorAll("[data-start]").forEach((button) => {
    button.addEventListener("click", () => go(button, button.dataset.start, {}, button.dataset.go));
  });
  document.querySelectorAll("[data-copy]").forEach((button) => {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    });
  });

  // The slider over the frontier, and the two designs that are pinned.
  const frontier = () => {
    const found = JSON.parse(element("frontier-designs").textContent);
    const place = element("place");
    const pinned = { A: found.rows[found.winner], B: null };
    const here = () => found.rows[Number(place.value)];
    const dots = [...document.querySelectorAll(".small-chart .dot.edge")]; // in the order of the slider
    const mark = () => {
      if (dots.length !== found.rows.length) return; // the picture is on other axes
      dots.forEach((dot, i) => {
        dot.classList.toggle("here", i === Number(place.value));
        dot.classList.toggle("pinned", [pinned.A, pinned.B].includes(found.rows[i]));
      });
    };
    const body = element("pinned").querySelector("tbody");
    const cell = (name, words) => Object.assign(document.createElement(name), { textContent: words });
    const line = (name, values, ratio, apart) => {
      const row = document.createElement("tr");
      const head = cell("th", name);
      head.scope = "row";
      row.append(head, ...values.map((value) => cell("td", value ?? "")), cell("td", ratio));
      row.classList.toggle("apart", apart);
      return row;
    };
    const show = () => {
      const [a, b] = [pinned.A, pinned.B];
      const three = [here(), a, b];
      const names = new Set(three.filter(Boolean).flatMap((row) => Object.keys(row.figures)));
      const fields = new Set(three.filter(Boolean).flatMap((row) => Object.keys(row.fields)));
      const lines = [line("design", three.map((row) => row?.id), "", false)];
      names.forEach((name) => {
        const [left, right] = [a?.figures[name], b?.figures[name]];
        const ratio = left && right && left[0] ? `x ${(right[0] / left[0]).toPrecision(3)}` : "";
        lines.push(line(name, three.map((row) => row?.figures[name]?.[1]), ratio, false));
      });
      fields.forEach((name) => {
        const apart = Boolean(a && b && a.fields[name] !== b.fields[name]);
        lines.push(line(name, three.map((row) => row?.fields[name]), apart ? "differs" : "", apart));
      });
      body.replaceChildren(...lines);
      mark();
      const row = here();
      const told = Object.entries(row.figures).slice(0, 4).map(([name, value]) => `${name} ${value[1]}`).join(", ");
      const words = `${Number(place.value) + 1} of ${found.rows.length}: ${row.id}; ${told}`;
      element("place-words").textContent = words;
      place.setAttribute("aria-valuetext", words);
      const file = document.querySelector("[data-file]");
      file.href = `${file.dataset.file}?design=${encodeURIComponent(row.id)}`;
    };
    place.addEventListener("input", show);
    ["A", "B"].forEach((side) => {
      element(`pin-${side}`).addEventListener("click", () => { pinned[side] = here(); show(); });
    });
    document.querySelectorAll("button[data-design]").forEach((button) => {
      button.addEventListener("click", () => go(button, button.dataset.design, { design: here().id }));
    });
    element("serving").addEventListener("submit", (event) => {
      event.preventDefault();
      const texts = Object.fromEntries([...new FormData(event.target)].filter(([, text]) => text.trim() !== ""));
      go(event.target.querySelector("button"), event.target.dataset.design, { ...texts, design: here().id });
    });
    show();
  };

  // The form: what the command would say, while one types.
  const question = () => {
    const form = element("question");
    const texts = () => Object.fromEntries([...new FormData(form)].filter(([, text]) => text.trim() !== ""));
    let asked = 0, timer = 0;
    const check = async () => {
      const number = ++asked;
      const given = texts();
      const answer = await ask("/check", given).catch(() => ({ error: "The server of this page has ended.", field: "" }));
      if (number !== asked) return;
      element("command").textContent = (answer.command ?? []).join(" ");
      const begun = Object.keys(given).length > 0;
      element("error").textContent = begun ? answer.error : "Begin with a workload, for instance gpt3.";
      element("error").classList.toggle("hint", !begun);
      element("ask").disabled = Boolean(answer.error);
      form.querySelectorAll("input").forEach((field) => {
        const wrong = field.name === answer.field && Boolean(answer.error) && begun;
        field.setAttribute("aria-invalid", String(wrong));
        if (wrong && field.closest("details")) field.closest("details").open = true;
      });
      document.documentElement.dataset.checked = String(number);
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 250); });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      clearTimeout(timer);
      await check();
      if (!element("ask").disabled) go(element("ask"), "/start", texts());
    });
    check();
  };

  // A command at work.
  const work = () => {
    const place = element("at-work");
    const address = `/at-work/${place.dataset.number}`;
    const anchor = location.hash;
    const words = (state) => {
      const time = `${state.elapsed_s.toFixed(0)} s`;
      const far = state.progress;
      const working = state.state === "working";
      const searching = working && far && far.stage === "searching";
      const bound = searching && !far.note.includes("bound") ? "no bound yet" : "";
      const left = searching && state.limit_s ? `at most ${Math.max(0, state.limit_s - state.elapsed_s).toFixed(0)} s left` : "";
      const how = { working: "", done: "done", failed: "failed", stopped: "stopped" }[state.state];
      const counted = far && (far.total ? `${far.stage}, ${far.done.toLocaleString("en")} of ${far.total.toLocaleString("en")}` : far.stage);
      return [time, how, working && counted, far && far.note, bound, left].filter(Boolean).join("; ");
    };
    const follow = async () => {
      let state;
      try {
        state = await (await fetch(`${address}/state`)).json();
      } catch {
        element("told").textContent = "The server of this page has ended, and the command with it.";
        return;
      }
      element("told").textContent = words(state);
      const far = state.progress;
      const share = far && far.total ? far.done / far.total : state.limit_s ? state.elapsed_s / state.limit_s : 0;
      element("meter").style.width = `${100 * Math.min(1, share)}%`;
      element("said").textContent = state.said.join("\n");
      element("stop").hidden = state.state !== "working";
      if (state.target) location.replace(state.target + anchor);
      else if (state.state === "working") setTimeout(follow, 500);
    };
    element("stop").addEventListener("click", async () => {
      element("stop").textContent = "Stop at once";
      await ask(`${address}/stop`);
    });
    follow();
  };

  if (element("frontier-designs")) frontier();
  if (element("question")) question();
  if (element("at-work")) work();
  document.documentElement.dataset.ready = "yes";
})();
