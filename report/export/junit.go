package export

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/figures"
)

// The elements of JUnit's XML that CI systems read.
type (
	suites struct {
		XMLName xml.Name `xml:"testsuites"`
		Suite   suite    `xml:"testsuite"`
	}
	suite struct {
		Name       string     `xml:"name,attr"`
		Tests      int        `xml:"tests,attr"`
		Failures   int        `xml:"failures,attr"`
		Errors     int        `xml:"errors,attr"`
		Skipped    int        `xml:"skipped,attr"`
		Seconds    string     `xml:"time,attr"`
		Timestamp  string     `xml:"timestamp,attr"`
		Hostname   string     `xml:"hostname,attr"`
		Properties []property `xml:"properties>property"`
		Cases      []testCase `xml:"testcase"`
	}
	property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	testCase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Failure *message `xml:"failure"`
		Skipped *message `xml:"skipped"`
		Output  string   `xml:"system-out,omitempty"`
	}
	message struct {
		Text string `xml:"message,attr"`
	}
)

// junit writes JUnit's XML. Each aim, and each bound of an objective, is a test case. One that is not reached
// has failed. One without an answer is skipped, with the reason, and so is one that was reached without a
// verdict, as in a quick session. Void runs are in the properties.
func junit(w io.Writer, d report.Document) error {
	s := d.Summary()
	e := s.Session.Environment
	out := suite{Name: s.Session.Scenario.Name, Timestamp: s.Session.Started.UTC().Format("2006-01-02T15:04:05"),
		Seconds:  fmt.Sprintf("%.3f", max(0, s.Session.Ended.Sub(s.Session.Started)).Seconds()),
		Hostname: e.Hostname, Properties: []property{{"mode", s.Session.Scenario.Mode}, {"kernel", e.Kernel},
			{"complete", fmt.Sprint(s.Session.Complete)}, {"runs planned", fmt.Sprint(s.Planned)},
			{"runs used", fmt.Sprint(s.Used)}, {"runs void", fmt.Sprint(s.Void)}}}
	for _, r := range s.Session.Runs {
		if len(r.Void) > 0 {
			out.Properties = append(out.Properties, property{fmt.Sprintf("void: block %d, %s", r.Block, r.Cell),
				strings.Join(r.Void, "; ")})
		}
	}
	for _, a := range s.Aims {
		out.Cases = append(out.Cases, ofAim(out.Name, s.AimPair(), s.AimNote(), a))
	}
	for _, j := range s.Objective {
		out.Cases = append(out.Cases, ofBound(out.Name, s.Session.Lane.Name, j))
	}
	for _, c := range out.Cases {
		out.Tests++
		if c.Failure != nil {
			out.Failures++
		}
		if c.Skipped != nil {
			out.Skipped++
		}
	}
	data, err := xml.MarshalIndent(suites{Suite: out}, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, data)
	}
	return err
}

func ofAim(scenario, pair, note string, a figures.Aim) testCase {
	c := testCase{Name: fmt.Sprintf("%s: %s (%s)", a.Text, a.Goal, pair), Class: scenario + ".aims",
		Output: a.Found + note}
	if a.Firm {
		c.Output = a.Found
	}
	if len(a.Doubts) > 0 {
		c.Output += "; a guard failed: " + strings.Join(a.Doubts, ", ")
	}
	said := &message{fmt.Sprintf("%s: %s; aim: %s", a.State, c.Output, a.Goal)}
	switch {
	case a.State == figures.Reached && a.Firm:
	case a.State == figures.NotReached:
		c.Failure = said
	default:
		c.Skipped = said
	}
	return c
}

func ofBound(scenario, of string, j lane.Judgement) testCase {
	c := testCase{Name: fmt.Sprintf("lane %s: %s", of, j.Bound), Class: scenario + ".objective",
		Output: j.String()}
	switch j.Verdict {
	case lane.Held:
	case lane.Missed:
		c.Failure = &message{j.String()}
	default:
		c.Skipped = &message{j.String()}
	}
	return c
}
