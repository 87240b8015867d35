// Package claims is what an audit of a published table says: its findings, as JSON and as text. claims/rules
// makes them.
package claims

import "errors"

// Severity says what is wrong with some figures.
type Severity int

// The severities.
const (
	None          Severity = iota
	Unsaid                 // the figures may be right, but the table lacks what they would need
	Suspicious             // the figures may be right, but not as a reader would take them
	Impossible             // no measurement can have given this
	Contradiction          // two figures of the table cannot both be right
)

func (s Severity) String() string {
	return [...]string{"none", "unsaid", "suspicious", "impossible", "contradiction"}[s]
}

// MarshalText makes a severity its name in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a severity.
func (s *Severity) UnmarshalText(text []byte) error {
	for *s = Unsaid; *s <= Contradiction; *s++ {
		if s.String() == string(text) {
			return nil
		}
	}
	return errors.New("expected unsaid, suspicious, impossible or contradiction")
}

// Figure is one row of the table.
type Figure struct {
	Line      int    `json:"line"`         // in the CSV file
	At        string `json:"at,omitempty"` // the line in its source, as the table says it
	Source    string `json:"source,omitempty"`
	Scenario  string `json:"scenario"`
	Config    string `json:"config"`
	Metric    string `json:"metric"`
	Value     string `json:"value"` // as printed
	Unit      string `json:"unit"`  // as printed
	Qualifier string `json:"qualifier,omitempty"`
	Setup     bool   `json:"-"` // it describes the conditions of all measurements of its source
}

// Finding is something that the arithmetic shows.
type Finding struct {
	Rule       string   `json:"rule"`
	Title      string   `json:"title"`
	Severity   Severity `json:"severity"`
	Figures    []Figure `json:"figures"`    // that it is about
	Sum        []string `json:"sum"`        // written out, with units
	Conclusion string   `json:"conclusion"` // what a reader should make of it
}

// Report is what an audit of a table finds.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	File       string    `json:"file,omitempty"` // as the caller names it
	Rows       int       `json:"rows"`
	Sources    int       `json:"sources"`
	Findings   []Finding `json:"findings"` // the worst first, else in the order of the table
	Table      []Figure  `json:"-"`        // all rows
}

// Worst is the severity of the worst finding, which is the first.
func (r Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return None
	}
	return r.Findings[0].Severity
}
