/* Search from a disk: browsers start no worker from a file, so its script runs in a hidden frame instead. */
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      const told = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inner.postMessage = told; // what the script says comes here
      inner.importScripts = (...scripts) =>
        scripts.reduce((before, script) => before.then(() => load(inner, script)), Promise.resolve());
      this.ready = load(inner, url);
    }
    postMessage(data) {
      this.ready.then(() => {
        const inner = this.frame.contentWindow;
        inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
  const load = (inner, url) =>
    new Promise((resolve, reject) => {
      const script = inner.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = resolve;
      script.onerror = reject;
      inner.document.body.append(script);
    });
}
