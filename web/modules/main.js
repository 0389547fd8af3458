document.getElementById("app").dataset.ready = "true";
