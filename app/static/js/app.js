// Starts every module; each one does nothing on pages without its elements.
import { startColumns } from "./columns.js";
import { startCompare } from "./compare.js";
import { startCopying } from "./copy.js";
import { startDropzones } from "./dropzone.js";
import { startExport } from "./export.js";
import { startFields } from "./fields.js";
import { startGallery } from "./gallery.js";
import { startLive } from "./live.js";
import { startPlayers } from "./player.js";
import { startPromptTools } from "./prompt.js";
import { startSelection } from "./selection.js";
import { startTheme } from "./theme.js";
import { startVariantPage } from "./variant.js";

startTheme();
startLive();
startPromptTools();
startDropzones();
startColumns();
startFields();
startCopying();
startGallery();
startPlayers();
startExport();
startSelection();
startCompare();
startVariantPage();
