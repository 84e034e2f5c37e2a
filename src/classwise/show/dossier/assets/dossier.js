// A dossier has nothing to click but its theme.

startTheme(() => {});
