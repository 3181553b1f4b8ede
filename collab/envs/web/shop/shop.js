// The example shop: everything happens in the page and in its own storage.
const GOODS = [
  { id: "mug-blue", name: "Blue mug", price: 9.5, colours: ["blue"], text: "Holds a third of a litre." },
  { id: "mug-red", name: "Red mug", price: 8, colours: ["red"], text: "Holds a third of a litre." },
  { id: "lamp", name: "Desk lamp", price: 34, colours: ["black", "white"], text: "Bends to every side." },
  { id: "notebook", name: "Notebook", price: 4.2, colours: ["green", "grey"], text: "Ninety-six pages, lined." },
  { id: "pen", name: "Fountain pen", price: 21, colours: ["black", "blue"], text: "Writes as long as you do." },
];
const $ = (selector) => document.querySelector(selector);
const query = new URLSearchParams(location.search);
const read = (key, fallback) => JSON.parse(localStorage.getItem(key) ?? JSON.stringify(fallback));
const write = (key, value) => localStorage.setItem(key, JSON.stringify(value));
const money = (amount) => `€ ${amount.toFixed(2)}`;
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

const greet = () => {
  if (read("cookies", null)) return;
  const choose = (answer) => () => { write("cookies", answer); veil.remove(); };
  const veil = make("div", { className: "veil" }, make("div", { className: "dialog", role: "dialog" },
    make("h2", { textContent: "Cookies" }),
    make("p", { textContent: "This shop would like to remember your cart." }),
    make("button", { textContent: "Accept", onclick: choose("all") }),
    make("button", { textContent: "Only what is needed", onclick: choose("needed") })));
  document.body.append(veil);
};

const list = () => {
  const wanted = (query.get("q") ?? "").toLowerCase();
  $("#search").value = query.get("q") ?? "";
  const hits = GOODS.filter((good) => good.name.toLowerCase().includes(wanted));
  $("#goods").append(...hits.map((good) => make("li", {}, make("a", { href: `product.html?id=${good.id}`, textContent: good.name }), ` ${money(good.price)}`)));
  $("#count").textContent = wanted ? `${hits.length} of ${GOODS.length} goods match “${query.get("q")}”` : `${hits.length} goods`;
};

const product = () => {
  const good = GOODS.find((each) => each.id === query.get("id"));
  if (!good) { $("h1").textContent = "No such product"; $("#order").remove(); return; }
  document.title = `${good.name} – Corner Shop`;
  $("h1").textContent = good.name;
  $("#price").textContent = money(good.price);
  $("#text").textContent = good.text;
  $("#colour").append(...good.colours.map((colour) => make("option", { textContent: colour })));
  $("#order").onsubmit = (event) => {
    event.preventDefault();
    write("cart", [...read("cart", []), { id: good.id, colour: $("#colour").value, amount: Number($("#amount").value) }]);
    location.href = "cart.html";
  };
};

const cart = () => {
  const lines = read("cart", []);
  const total = lines.reduce((sum, line) => sum + line.amount * GOODS.find((good) => good.id === line.id).price, 0);
  $("#lines").append(...lines.map((line) => make("tr", {},
    make("td", { textContent: GOODS.find((good) => good.id === line.id).name }),
    make("td", { textContent: line.colour }), make("td", { textContent: line.amount }))));
  $("#total").textContent = lines.length ? `Total: ${money(total)}` : "Your cart is empty.";
  $("#checkout").hidden = $("#clear").hidden = !lines.length;
  $("#clear").onclick = () => { if (confirm("Empty the whole cart?")) { write("cart", []); location.reload(); } };
};

const checkout = () => {
  $("#form").onsubmit = (event) => {
    event.preventDefault();
    const problem = !$("#terms").checked ? "Please accept the terms." : "";
    $("#problem").textContent = problem;
    if (problem) return;
    write("order", { name: $("#name").value, street: $("#street").value, date: $("#date").value, pay: $("input[name=pay]:checked").value, lines: read("cart", []) });
    write("cart", []);
    location.href = "done.html";
  };
};

const done = () => {
  const order = read("order", null);
  if (!order) { $("#thanks").textContent = "There is no order."; return; }
  $("#thanks").textContent = `Thank you, ${order.name}!`;
  $("#thanks").dataset.pay = order.pay;
  $("#what").textContent = order.lines.map((line) => `${line.amount} × ${line.id} (${line.colour})`).join(", ");
};

const pages = { list, product, cart, checkout, done };
pages[document.body.dataset.page]?.();
greet();
