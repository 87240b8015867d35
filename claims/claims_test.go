package claims

import (
	"strings"
	"testing"
)

func TestVerdict(t *testing.T) {
	for worst, want := range map[Severity]string{None: "the figures agree: ", Unsaid: "the figures agree: ",
		Suspicious: "there are suspicious figures: ", Impossible: "there are impossible figures: ",
		Contradiction: "the figures do not agree: "} {
		r := Report{Compared: 2, Findings: []Finding{{Severity: worst}}}
		if !strings.HasPrefix(r.Verdict(), want) {
			t.Errorf("%v: %s", worst, r.Verdict())
		}
	}
	if r := (Report{Rows: 3}); !strings.HasPrefix(r.Verdict(), "no figure could be compared: ") {
		t.Errorf("of figures that no rule knows: %s", r.Verdict())
	}
}
