"use strict";
// Text is always set as text, never as markup.

const $ = (id) => document.getElementById(id);
function made(kind, classes = "", text = null) {
  const element = document.createElement(kind);
  element.className = classes;
  if (text !== null) element.textContent = text;
  return element;
}
function wide(element, share) {
  element.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return element;
}
