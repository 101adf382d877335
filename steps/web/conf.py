"""Sphinx reads this: https://www.sphinx-doc.org/en/master/usage/configuration.html"""

from steps.web.project import folder, settings

project = "tinytorch"
extensions = ["myst_nb", "steps.web.extension"]
nb_execution_mode = "off"  # the notebooks hold their outputs
nb_execution_cache_path = str(folder() / "notebooks")
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
html_math_renderer = "mathml"
smartquotes = False  # the text is what the file says
highlight_language = "none"
html_theme = "furo"
html_title = "tinytorch"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = html_show_copyright = False
html_baseurl = settings()["site"]
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True}
if settings()["repository"]:
    html_theme_options |= {
        "footer_icons": [{"name": "Source", "url": settings()["repository"], "html": "Source"}]
    }
