package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/boot"
	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/cores"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/draw"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

func planCommand() *cobra.Command {
	var files []string
	var from source
	var repack bool
	cmd := cli.Prints(&cobra.Command{
		Use:   "plan -f LANES",
		Short: "Show what would go where on this machine, and why",
	}, func(cmd *cobra.Command, _ []string) (cli.Document, error) {
		want, err := lane.ReadAll(files, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		p, h, err := from.plan(want, repack)
		err = plan.At(err, want)
		if refusal, ok := errors.AsType[*plan.Refusal](err); ok {
			return cli.Written{Document: refusal, Text: func(io.Writer) {}}, cli.Beside(err)
		}
		return cli.Written{Document: p, Text: func(w io.Writer) { draw.Placement(w, p) },
			SVG: func(w io.Writer) { _ = draw.SVG(w, h, p) }}, err
	}, "svg")
	fileFlag(cmd, &files)
	from.flags(cmd,
		"placement that is in force already (what -o json prints); without it, the lanes in force here")
	cmd.Flags().BoolVar(&repack, "repack", false,
		"move lanes that are placed, where that saves something that costs more")
	cli.Must(cmd.MarkFlagRequired("file"))
	return cmd
}

func coresCommand() *cobra.Command {
	var app string
	var granted cpuset.Set
	var from source
	cmd := cli.Prints(&cobra.Command{
		Use:   "cores NAME --for APPLICATION",
		Short: "Write the core lists that an application in a lane needs",
		Long:  "Writes what an application needs to be told of its lane. The applications:\n" + cores.Help(),
		Args:  cobra.ExactArgs(1),
	}, func(_ *cobra.Command, args []string) (cli.Document, error) {
		if _, err := cores.Find(app); err != nil {
			return nil, cli.Usage(err)
		}
		p, err := from.placed()
		if err != nil {
			return nil, err
		}
		placed, ok := p.Lane(args[0])
		if !ok {
			return nil, cli.Usage(fmt.Errorf("%s: there is no lane %q", cmp.Or(from.file, "in force"), args[0]))
		}
		h, root, err := from.readFor(p)
		if err != nil {
			return nil, err
		}
		r := lanes.CoresOf(options(), h, root, p, placed, granted)
		r.InForce = from.file == ""
		d, err := cores.New(app, r)
		return d, cli.Usage(err)
	})
	cmd.Flags().StringVar(&app, "for", "", "application, one of those above")
	cmd.Flags().TextVar(&granted, "cpuset", cpuset.Set{},
		"cpuset that the application will see, a `cpulist`; without it, the lane's CPUs")
	from.flags(cmd, "placement with the lane (what plan -o json prints); without it, the lanes in force")
	cli.Must(cmd.MarkFlagRequired("for"))
	return cmd
}

func bootCommand() *cobra.Command {
	var grub string
	var apply, undo bool
	var from source
	cmd := cli.Prints(&cobra.Command{
		Use: "boot",
		Short: "Show the kernel command line that lanes want, beside the one in force; --apply edits GRUB's " +
			"defaults",
	}, func(*cobra.Command, []string) (cli.Document, error) {
		if undo {
			return boot.UndoGRUB(grub)
		}
		p, err := from.placed()
		if err != nil {
			return nil, err
		}
		h, _, err := from.readFor(p)
		if err != nil {
			return nil, err
		}
		line := boot.Want(h, p)
		if apply {
			return boot.ApplyGRUB(grub, line)
		}
		return line, nil
	})
	from.flags(cmd, "placement with the lanes (what plan -o json prints); without it, the lanes in force")
	cmd.Flags().BoolVar(&apply, "apply", false,
		"write the line into GRUB's defaults file, and keep the file as it was beside it")
	cmd.Flags().BoolVar(&undo, "undo", false, "put GRUB's defaults file back as it was before the first --apply")
	cmd.Flags().StringVar(&grub, "grub", "/etc/default/grub", "GRUB's defaults file")
	cmd.MarkFlagsMutuallyExclusive("apply", "undo")
	return cmd
}
