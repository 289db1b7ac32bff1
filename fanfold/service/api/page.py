"""The documentation page: Swagger UI from Powertools' package with the document inside. It loads nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aws_lambda_powertools.event_handler.openapi import swagger_ui

# Powertools makes a page of its own too; the link to the document leads from that one to the page itself.
_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="UTF-8">
<title>Fanfold</title>
<style>%(css)s</style>
</head>
<body>
<div id="swagger-ui">Loading...</div>
<script>%(js)s</script>
<script>
var ui = SwaggerUIBundle({
  dom_id: "#swagger-ui",
  spec: %(document)s,
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [SwaggerUIBundle.plugins.DownloadUrl],
  layout: "BaseLayout",
  deepLinking: true,
  filter: true
})
ui.specActions.updateUrl(new URL("openapi.json", window.location.href).href)
</script>
</body>
</html>
"""


def documentation(document: Mapping[str, Any]) -> str:
    """The page as HTML. It shows where the document is, and what it calls is relative to that."""
    assets = Path(swagger_ui.__file__).parent
    return _PAGE % {
        "css": (assets / "swagger-ui.min.css").read_text("utf-8"),
        "js": (assets / "swagger-ui-bundle.min.js").read_text("utf-8"),
        "document": json.dumps(document).replace("<", "\\u003c"),  # or a text in it could end the script
    }
