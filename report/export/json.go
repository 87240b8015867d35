package export

import (
	"encoding/json"
	"io"

	"isolane.dev/isolane/report"
)

// document writes the Report as `isolane report -o json` does.
func document(w io.Writer, d report.Document) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(d)
}
