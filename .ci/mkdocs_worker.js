// The search of a page that was opened from disk: there a browser starts no worker, so a hidden frame runs its script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.scope.postMessage = answer;
      const script = frame.contentDocument.createElement("script");
      this.loaded = new Promise((done) => { script.onload = done; });
      script.src = url;
      frame.contentDocument.body.append(script);
    }
    postMessage(data) {
      this.loaded.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
