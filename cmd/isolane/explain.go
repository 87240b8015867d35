package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/examples"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/terminal"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain {lane[.FIELD...] | examples[/NAME]}",
		Short: "Explain the fields of a file with lanes (lane.spec.cpus), and show examples (examples/web)",
		Args:  cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			names := []string{"lane", "examples"}
			for _, f := range lane.Fields() {
				names = append(names, "lane."+f.Path)
			}
			return append(names, exampleNames()...), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "examples" || strings.HasPrefix(args[0], "examples/") {
				return showExample(cmd.OutOrStdout(), args[0])
			}
			topic, err := lane.Topic(args[0])
			if err != nil {
				return usage(err)
			}
			return explainLane(cmd.OutOrStdout(), topic)
		},
	}
}

// exampleNames are the files with lanes to begin from: examples/web.
func exampleNames() []string {
	files, err := fs.Glob(examples.Files, "*.yaml")
	if err != nil {
		panic(err) // the pattern is well formed
	}
	for i, f := range files {
		files[i] = "examples/" + strings.TrimSuffix(f, ".yaml")
	}
	return files
}

// showExample prints an example, or what they all are about.
func showExample(w io.Writer, name string) error {
	names := exampleNames()
	if name == "examples" {
		for _, n := range names {
			text, err := example(n)
			if err != nil {
				return fail(err)
			}
			about, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
			fmt.Fprintf(w, "%-18s %s\n", n, about)
		}
		return nil
	}
	name = strings.TrimSuffix(name, ".yaml")
	if !slices.Contains(names, name) {
		return usage(fmt.Errorf("%.60s: there is no such example: isolane explain examples lists them", name))
	}
	text, err := example(name)
	if err != nil {
		return fail(err)
	}
	fmt.Fprint(w, text)
	return nil
}

func example(name string) (string, error) {
	text, err := examples.Files.ReadFile(strings.TrimPrefix(name, "examples/") + ".yaml")
	return string(text), err
}

// explainLane prints one field and those inside of it.
func explainLane(w io.Writer, topic lane.Field) error {
	fmt.Fprintf(w, "KIND:     %s\nVERSION:  %s\n\n", lane.Kind, lane.APIVersion)
	inside := func(f lane.Field) bool { return topic.Path == "" || strings.HasPrefix(f.Path, topic.Path+".") }
	if topic.Path == "" {
		fmt.Fprintln(w, "What one workload needs and then owns on its host. A file may hold several, set apart "+
			"by lines ---.")
	} else {
		explainField(w, topic, "lane."+topic.Path)
	}
	fields := false
	for _, f := range lane.Fields() {
		if !inside(f) {
			continue
		}
		if !fields {
			fmt.Fprint(w, "\nFIELDS:\n")
			fields = true
		}
		fmt.Fprintln(w)
		explainField(w, f, strings.ReplaceAll(strings.TrimPrefix(f.Path, topic.Path+"."), "*", "NAME"))
	}
	if topic.Path == "" {
		text, err := example("web")
		if err != nil {
			return fail(err)
		}
		fmt.Fprintf(w, "\nEXAMPLE:\n\n%s\nMore of them: isolane explain examples\n", text)
	}
	return nil
}

// explainField prints one field: how it is written, what holds without it, what it means.
func explainField(w io.Writer, f lane.Field, name string) {
	form := f.Form
	switch {
	case f.Form == "BOOL":
		form = "true | false"
	case len(f.Values) > 0:
		form = strings.Join(f.Values, " | ")
	case f.Max > 0:
		form = fmt.Sprintf("%s, %d-%d", f.Form, f.Min, f.Max)
	}
	without := "required"
	if !f.Required {
		without = "without it: " + cmp.Or(f.Default, "nothing")
	}
	term := terminal.Of(w)
	fmt.Fprint(w, term.Fold(term.Bold(name)+"  ", "<"+form+">  "+without))
	last := name[strings.LastIndexByte(name, '.')+1:]
	fmt.Fprint(w, term.Fold("    ", f.Meaning))
	if last != "NAME" {
		fmt.Fprintf(w, "    example: %s: %s\n", last, f.Example)
	}
}
