package claims

import (
	"strings"
	"testing"
)

func TestVerdict(t *testing.T) {
	for worst, want := range map[Severity]string{None: "the figures agree: ", Unsaid: "the figures agree: ",
		Suspicious: "there are suspicious figures: ", Impossible: "there are impossible figures: ",
		Contradiction: "the figures do not agree: "} {
		r := Report{Findings: []Finding{{Severity: worst}}}
		if !strings.HasPrefix(r.Verdict(), want) {
			t.Errorf("%v: %s", worst, r.Verdict())
		}
	}
}
