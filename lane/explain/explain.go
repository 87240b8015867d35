// Package explain prints the reference of lane files for people: their fields, and examples.
package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/examples"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/terminal"
)

// all is the topic that lists the examples; each example is a topic below it.
const all = "examples"

// Topics returns what Write can explain: lane.spec.cpus, examples/web.
func Topics() []string {
	topics := []string{"lane", all}
	for _, f := range lane.Fields() {
		topics = append(topics, "lane."+f.Path)
	}
	return append(topics, exampleNames()...)
}

// Write explains a topic. words has the values of fields for which lane.Fields leaves them to the caller, by
// field. For an unknown topic the error suggests others.
func Write(w io.Writer, topic string, words map[string][]string) error {
	names, name := exampleNames(), strings.TrimSuffix(topic, ".yaml")
	switch {
	case topic == all:
		for _, n := range names {
			about, _, _ := strings.Cut(strings.TrimPrefix(example(n), "# "), "\n")
			fmt.Fprintf(w, "%-18s %s\n", n, about)
		}
		return nil
	case slices.Contains(names, name):
		fmt.Fprint(w, example(name))
		return nil
	case strings.HasPrefix(topic, all+"/"):
		return fmt.Errorf("%.60s: there is no such example: isolane explain examples lists them", name)
	}
	f, err := lane.Topic(topic)
	if err != nil {
		return err
	}
	writeLane(w, f, words)
	return nil
}

// exampleNames returns the topics of single examples.
func exampleNames() []string {
	files, err := examples.Files.ReadDir(".")
	if err != nil {
		panic(err) // the examples are embedded in the program
	}
	var names []string
	for _, f := range files {
		names = append(names, all+"/"+strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

func example(name string) string {
	text, err := examples.Files.ReadFile(strings.TrimPrefix(name, all+"/") + ".yaml")
	if err != nil {
		panic(err) // it is embedded in the program
	}
	return string(text)
}

// writeLane prints one field and those inside of it.
func writeLane(w io.Writer, topic lane.Field, words map[string][]string) {
	fmt.Fprintf(w, "KIND:     %s\nVERSION:  %s\n\n", lane.Kind, lane.APIVersion)
	if topic.Path == "" {
		fmt.Fprint(w, terminal.Of(w).Fold("", "What one workload needs and then owns on its host. A file may hold "+
			"several, set apart by lines ---."))
	} else {
		writeField(w, topic, "lane."+topic.Path, words)
	}
	heading := "\nFIELDS:\n"
	for _, f := range lane.Fields() {
		if topic.Path != "" && !strings.HasPrefix(f.Path, topic.Path+".") {
			continue
		}
		fmt.Fprintln(w, heading)
		heading = ""
		writeField(w, f, strings.ReplaceAll(strings.TrimPrefix(f.Path, topic.Path+"."), "*", "NAME"), words)
	}
	if topic.Path == "" {
		fmt.Fprintf(w, "\nEXAMPLE:\n\n%s\nMore of them: isolane explain examples\n", example(all+"/web"))
	}
}

// writeField prints one field: how it is written, its default, and what it means.
func writeField(w io.Writer, f lane.Field, name string, words map[string][]string) {
	form, values := f.Form, slices.Concat(f.Values, words[f.Path])
	switch {
	case f.Form == "BOOL":
		form = "true | false"
	case len(values) > 0:
		form = strings.Join(values, " | ")
	case f.Max > 0:
		form = fmt.Sprintf("%s, %d-%d", f.Form, f.Min, f.Max)
	}
	without := "required"
	if !f.Required {
		without = "without it: " + cmp.Or(f.Default, "nothing")
	}
	term := terminal.Of(w)
	fmt.Fprint(w, term.Fold(term.Bold(name)+"  ", "<"+form+">  "+without))
	fmt.Fprint(w, term.Fold("    ", f.Meaning))
	if last := name[strings.LastIndexByte(name, '.')+1:]; last != "NAME" {
		fmt.Fprintf(w, "    example: %s: %s\n", last, f.Example)
	}
}
