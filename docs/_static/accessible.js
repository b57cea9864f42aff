// What the theme and the gallery leave out for people who hear a page, or move through it by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const set = (selector, name, value) => {
    for (const found of document.querySelectorAll(selector)) {
      found.setAttribute(name, typeof value === "function" ? value(found) : value);
    }
  };
  set('.caption[role="heading"]', "aria-level", "2");
  set("aside.sidebar-drawer", "aria-label", "All pages");
  set("aside.toc-drawer", "aria-label", "This page");
  set(".content-icon-container", "role", "navigation");
  set(".content-icon-container", "aria-label", "Source and colours");
  set(".sphx-glr-thumbcontainer a", "aria-label", (link) => link.textContent.trim());

  // the search page has its form in the sidebar and its results in a box, and nothing that says what it is
  const results = document.getElementById("search-results");
  if (results && !document.querySelector("h1")) {
    const title = document.createElement("h1");
    title.textContent = "Search";
    results.before(title);
    results.setAttribute("role", "status");
  }

  // what scrolls sideways can be reached, and then scrolled with the arrow keys
  const reach = () => {
    for (const box of document.querySelectorAll("pre, .table-wrapper, mjx-container, .math")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);
});
