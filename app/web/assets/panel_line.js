// The line on which the server tells what happens in the pool. It stands only while somebody can see the panel.

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

export class PanelLine {
  /** onNews: called with each piece of news; the first one on a new line tells all. */
  constructor(onNews) {
    this.onNews = onNews;
    this.socket = null;
    this.isWanted = false;
    this.pause = FIRST_PAUSE_MS;
  }

  want(isWanted) {
    if (isWanted === this.isWanted) return;
    this.isWanted = isWanted;
    clearTimeout(this.timer);
    if (isWanted) this.connect();
    else {
      this.socket?.close();
      this.socket = null;
    }
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/paged-chat/panel`);
    this.socket = socket;
    socket.onopen = () => (this.pause = FIRST_PAUSE_MS);
    socket.onmessage = (event) => socket === this.socket && this.onNews(JSON.parse(event.data));
    socket.onclose = () => {
      if (socket !== this.socket) return;
      this.timer = setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    };
  }

  tell(request) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(request));
  }
}
