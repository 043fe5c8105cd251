// The line on which the server tells what happens. It comes back by itself when it breaks.

const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 5000;
const STRANGER = 4401;

export class Connection {
  /**
   * onNews: called with each piece of news.
   * onOpen: called whenever the line stands, the first time and after a break.
   * onBreak: called when it breaks.
   */
  constructor({ onNews, onOpen, onBreak }) {
    this.onNews = onNews;
    this.onOpen = onOpen;
    this.onBreak = onBreak;
    this.pause = FIRST_PAUSE_MS;
    this.connect();
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/paged-chat/live`);
    this.socket.onopen = () => {
      this.pause = FIRST_PAUSE_MS;
      this.onOpen();
    };
    this.socket.onmessage = (event) => this.onNews(JSON.parse(event.data));
    this.socket.onclose = (event) => {
      if (event.code === STRANGER) {
        location.reload(); // to the login
        return;
      }
      this.onBreak();
      setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    };
  }

  /** What can't be said now needn't be: `onOpen` says it all again. */
  tell(request) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(request));
  }
}
