"""Web pages in a real Chromium: MiniWoB++ and live sites, seen as labelled text or as pictures."""
