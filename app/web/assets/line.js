// A line on which the server tells what happens. While it is wanted it comes back by itself when it breaks.

const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 5000;
const STRANGER = 4401;

export class Line {
  /**
   * path: below the page's own addresses.
   * onNews: called with each piece of news.
   * onOpen: called whenever the line stands, the first time and after a break.
   * onBreak: called when it breaks.
   */
  constructor(path, { onNews, onOpen = () => {}, onBreak = () => {} }) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.url = `${scheme}://${location.host}/paged-chat/${path}`;
    this.onNews = onNews;
    this.onOpen = onOpen;
    this.onBreak = onBreak;
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
      this.socket.close();
      this.socket = null;
    }
  }

  connect() {
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.onopen = () => {
      this.pause = FIRST_PAUSE_MS;
      this.onOpen();
    };
    socket.onmessage = ({ data }) => socket === this.socket && this.onNews(JSON.parse(data));
    socket.onclose = ({ code }) => {
      if (socket !== this.socket) return;
      if (code === STRANGER) {
        location.reload(); // to the login
        return;
      }
      this.onBreak();
      this.timer = setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    };
  }

  /** What can't be said now needn't be: whoever speaks on a line says it all again when it stands. */
  tell(request) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(request));
  }
}
