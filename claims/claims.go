// Package claims has the findings of an audit of a published table, as JSON and as text. Package claims/rules
// makes them.
package claims

import "errors"

// Severity says how wrong figures are.
type Severity int

// The severities.
const (
	None          Severity = iota
	Unsaid                 // the figures may be right, but the table lacks what they need
	Suspicious             // the figures may be right, but mean something else than a reader would think
	Impossible             // no measurement can have given this
	Contradiction          // two figures of the table cannot both be right
)

func (s Severity) String() string {
	return [...]string{"none", "unsaid", "suspicious", "impossible", "contradiction"}[s]
}

// MarshalText returns the name of a severity, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name of a severity.
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
	At        string `json:"at,omitempty"` // the line in its source, as the table gives it
	Source    string `json:"source,omitempty"`
	Scenario  string `json:"scenario"`
	Config    string `json:"config"`
	Metric    string `json:"metric"`
	Value     string `json:"value"` // as printed
	Unit      string `json:"unit"`  // as printed
	Qualifier string `json:"qualifier,omitempty"`
	Setup     bool   `json:"-"` // it describes the conditions of all measurements of its source
}

// Finding is something that arithmetic shows.
type Finding struct {
	Rule       string   `json:"rule"`
	Title      string   `json:"title"`
	Severity   Severity `json:"severity"`
	Figures    []Figure `json:"figures"`    // the figures that it is about
	Sum        []string `json:"sum"`        // written out, with units
	Conclusion string   `json:"conclusion"` // what a reader should make of it
}

// Report is the result of an audit of a table.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	File       string    `json:"file,omitempty"` // as the caller names it
	Rows       int       `json:"rows"`
	Sources    int       `json:"sources"`
	Compared   int       `json:"compared"` // rows that a rule could compare with others, or with a limit
	Findings   []Finding `json:"findings"` // the worst first, then in the order of the table
	Table      []Figure  `json:"-"`        // all rows
}

// Worst returns the severity of the worst finding, which is the first.
func (r Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return None
	}
	return r.Findings[0].Severity
}
