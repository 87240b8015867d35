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
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

func planCommand() *cobra.Command {
	var files laneFiles
	var placedFile string
	var out cli.Output
	var repack bool
	var from source
	cmd := &cobra.Command{
		Use:   "plan -f LANES",
		Short: "Show what would go where on this machine, and why",
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := files.read(cmd)
			if err != nil {
				return err
			}
			show := func(p plan.Placement) error {
				return out.PrintAs(cmd, p, func(w io.Writer) { draw.Placement(w, p) })
			}
			if placedFile == "" && !repack && out.String() != "svg" && from.IsLive() {
				if _, lacks := lanes.Look(options()); unable(lacks) {
					p, aerr := agentOf(cmd, lacks).Plan(cmd.Context(), want)
					switch {
					case aerr == nil:
						return show(p)
					case !errors.Is(aerr, lacks): // else the plan without them is worth something
						return notPlanned(cmd, plan.At(aerr, want), "", out)
					}
				}
			}
			l, here := lanes.None(options()), false // none where the placement is that of a file
			var p plan.Placement
			if placedFile != "" {
				p, err = from.placed(placedFile)
			} else {
				l, here, err = from.inForce()
			}
			if err != nil {
				return err
			}
			h, _, err := from.read()
			switch {
			case err != nil:
				return err
			case here && !repack: // on the machine as it was before the lanes in force
				p, h, err = l.Want(want, false)
			case repack && len(l.Placement.Lanes) > 0:
				return cli.Usage(errors.New("--repack: name the placement with --placed FILE"))
			default:
				p, err = lanes.PlanFor(options(), h, p, want, repack)
			}
			if err != nil {
				return notPlanned(cmd, plan.At(err, want), placedFile, out)
			}
			if w := cmd.OutOrStdout(); out.String() == "svg" {
				return draw.SVG(w, h, p)
			}
			return show(p)
		},
	}
	files.flags(cmd)
	cmd.Flags().StringVar(&placedFile, "placed", "",
		"placement that is in force already (what -o json prints); without it, the lanes in force here")
	cmd.Flags().BoolVar(&repack, "repack", false,
		"move lanes that are placed, where that saves something that costs more")
	from.flags(cmd)
	out.Flags(cmd, "text", "json", "svg")
	cli.Must(cmd.MarkFlagRequired("file"))
	return cmd
}

// notPlanned prints a refusal as JSON where that is asked for.
func notPlanned(cmd *cobra.Command, err error, placedFile string, out cli.Output) error {
	if refusal, ok := errors.AsType[*plan.Refusal](err); ok && out.JSON() {
		if jerr := cli.PrintJSON(cmd.OutOrStdout(), refusal); jerr != nil {
			return jerr
		}
	}
	if placedFile != "" && is[*plan.Mismatch](err) {
		err = fmt.Errorf("%s: %w", placedFile, err)
	}
	return err
}

func coresCommand() *cobra.Command {
	var app, placedFile string
	var granted cpuset.Set
	var out cli.Output
	var from source
	cmd := &cobra.Command{
		Use:   "cores NAME --for APPLICATION",
		Short: "Write the core lists that an application in a lane needs",
		Long:  "Writes what an application needs to be told of its lane. The applications:\n" + cores.Help(),
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cores.Find(app); err != nil {
				return cli.Usage(err)
			}
			p, err := from.placed(placedFile)
			if err != nil {
				return err
			}
			placed, ok := p.Lane(args[0])
			if !ok {
				return cli.Usage(fmt.Errorf("%s: there is no lane %q", cmp.Or(placedFile, "in force"), args[0]))
			}
			h, root, err := from.readFor(p, placedFile)
			if err != nil {
				return err
			}
			d, err := cores.New(app, lanes.CoresOf(options(), h, root, p, placed, granted))
			return out.Print(cmd, d, cli.Usage(err))
		},
	}
	cmd.Flags().StringVar(&app, "for", "", "application, one of those above")
	cmd.Flags().StringVar(&placedFile, "placed", "",
		"placement with the lane (what plan -o json prints); without it, the lanes in force")
	cmd.Flags().TextVar(&granted, "cpuset", cpuset.Set{},
		"cpuset that the application will see, a `cpulist`; without it, the lane's CPUs")
	from.flags(cmd)
	out.Flags(cmd, "text", "json")
	cli.Must(cmd.MarkFlagRequired("for"))
	return cmd
}

func bootCommand() *cobra.Command {
	var placedFile, grub string
	var out cli.Output
	var apply, undo bool
	var from source
	cmd := &cobra.Command{
		Use: "boot",
		Short: "Show the kernel command line that lanes want, beside the one in force; --apply edits GRUB's " +
			"defaults",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if undo {
				g, err := boot.UndoGRUB(grub)
				return out.Print(cmd, g, err)
			}
			p, err := from.placed(placedFile)
			if err != nil {
				return err
			}
			h, _, err := from.readFor(p, placedFile)
			if err != nil {
				return err
			}
			line := boot.Want(h, p)
			if apply {
				g, err := boot.ApplyGRUB(grub, line)
				return out.Print(cmd, g, err)
			}
			return out.Print(cmd, line, nil)
		},
	}
	cmd.Flags().StringVar(&placedFile, "placed", "",
		"placement with the lanes (what plan -o json prints); without it, the lanes in force")
	out.Flags(cmd, "text", "json")
	cmd.Flags().BoolVar(&apply, "apply", false,
		"write the line into GRUB's defaults file, and keep the file as it was beside it")
	cmd.Flags().BoolVar(&undo, "undo", false, "put GRUB's defaults file back as it was before the first --apply")
	cmd.Flags().StringVar(&grub, "grub", "/etc/default/grub", "GRUB's defaults file")
	from.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("apply", "undo")
	return cmd
}
